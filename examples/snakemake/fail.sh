# The program is killed amid its work.
until grep -qs "step 20" work/solve/energies.part; do sleep 0.1; done
pkill -9 -f '^python3 solve.py'
