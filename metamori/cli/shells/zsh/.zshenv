# Read by zsh as its .zshenv under `metamori run --each-command`: a checkpoint before each command line, named by it (of a
# script, before each command). Its other files are the user's own; shells that it starts are as ever.
if [[ -n ${METAMORI_EACH_ZDOTDIR-} ]]; then ZDOTDIR=$METAMORI_EACH_ZDOTDIR; else unset ZDOTDIR; fi
unset METAMORI_EACH_ZDOTDIR

__metamori_before() {
    case $1 in
        metamori\ *|*/metamori\ *) return ;;
    esac
    "$METAMORI_EACH" -P -m metamori checkpoint -m "${1:0:1000}" >/dev/null </dev/null
}

# A line that the history does not keep has its text in the third word only.
__metamori_line() { __metamori_before "${1:-$3}"; }

if [[ -f ${ZDOTDIR:-$HOME}/.zshenv ]]; then . "${ZDOTDIR:-$HOME}/.zshenv"; fi
if [[ -o interactive ]]; then
    preexec_functions+=(__metamori_line)
else
    trap '(( ZSH_SUBSHELL || ${#funcstack} )) || __metamori_before "$ZSH_DEBUG_CMD"' DEBUG
fi
