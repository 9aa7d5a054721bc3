# Read instead of ~/.bashrc by an interactive bash under `metamori run --each-command`: a checkpoint before each
# command line, named by it.
if [ -f ~/.bashrc ]; then . ~/.bashrc; fi

__metamori_newest() { HISTTIMEFORMAT='' builtin history 1; }

__metamori_prompt() {
    [[ $(__metamori_newest) =~ ^\ *([0-9]+) ]]
    __metamori_seen=${BASH_REMATCH[1]}
}

# A line without a new entry in the history was kept out of it (HISTCONTROL), or is the last one again.
__metamori_before() {
    local line='a line that is not in the history'
    [[ $(__metamori_newest) =~ ^\ *([0-9]+)[*\ ]\ (.*)$ ]]
    if [ "${BASH_REMATCH[1]}" != "$__metamori_seen" ]; then line=${BASH_REMATCH[2]}; fi
    case $line in
        metamori\ *|*/metamori\ *) return ;;
    esac
    "$METAMORI_EACH" -P -m metamori checkpoint -m "${line:0:1000}" >/dev/null
}

if [[ $(declare -p PROMPT_COMMAND 2>/dev/null) == 'declare -a'* ]]; then
    PROMPT_COMMAND+=(__metamori_prompt)
else
    PROMPT_COMMAND="${PROMPT_COMMAND:+$PROMPT_COMMAND; }__metamori_prompt"
fi
PS0="$PS0"'$(__metamori_before)'
