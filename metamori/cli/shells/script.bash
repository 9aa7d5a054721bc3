# Read as BASH_ENV by a bash that is not interactive under `metamori run --each-command`: a checkpoint before each of its
# commands, named by it. Shells that it starts are as ever.
if [ -n "$METAMORI_EACH_BASH_ENV" ]; then
    BASH_ENV=$METAMORI_EACH_BASH_ENV
    . "$BASH_ENV"
else
    unset BASH_ENV
fi
unset METAMORI_EACH_BASH_ENV

__metamori_before() {
    case $BASH_COMMAND in
        metamori\ *|*/metamori\ *) return ;;
    esac
    "$METAMORI_EACH" -P -m metamori checkpoint -m "${BASH_COMMAND:0:1000}" >/dev/null </dev/null
}
trap __metamori_before DEBUG
