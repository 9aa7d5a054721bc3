# usage: tryrun.sh EVERY PROG...   runs under memory in fresh store
rm -rf /tmp/scratch-engine/st; e=$1; shift
PYTHONPATH=/tmp/wt/engine exec timeout 100 /tmp/wt/engine/.venv/bin/python -m metamori run --store /tmp/scratch-engine/st --memory --every $e -- "$@"
