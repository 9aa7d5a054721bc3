"""What bash, zsh and fish complete, made from the parsers of the verbs: options, their values, and indexes.

The indexes are read from the names in a store's folder: no program is started at a key press, and nothing is written.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

Verbs = dict[str, argparse.ArgumentParser]
# What the name of a value in the help stands for; any other is nothing that can be listed.
KINDS = {"DIR": "dir", "FILE": "file", "PATH": "file", "BINARY": "file", "GLOB": "file", "COMMAND": "command",
         "INDEX": "index", "A": "index", "B": "index", "SIG": "signal", "PICTURE": "picture"}
PICTURES = "timeline heatmap space"


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [each for each in parser._actions if each.help != argparse.SUPPRESS]


def help_of(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def brief(action: argparse.Action) -> str:
    """The first sentence: a completion has one line."""
    return help_of(action).split(". ")[0]


def words_of(action: argparse.Action) -> str:
    """`-m TEXT, --message TEXT`, or the name of an argument."""
    value = "" if action.nargs == 0 else f" {action.metavar or (action.dest.upper() if not action.choices else '')}"
    if action.choices:
        value = " " + "|".join(map(str, action.choices))
    names = [f"{name}{value}" for name in action.option_strings]
    return ", ".join(names) or str(action.metavar or action.dest)


def kind(action: argparse.Action) -> str:
    """One of KINDS, or the words to choose from, or "" """
    return " ".join(map(str, action.choices)) if action.choices else KINDS.get(str(action.metavar), "none")


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in actions(parser) if action.option_strings]


def places(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments that are not options, in order."""
    return [action for action in actions(parser) if not action.option_strings]


# -- bash ------------------------------------------------------------------------------------------------------------

BASH = r"""# bash completion for metamori; made from its parsers
_metamori_indexes() {  # STORE
    local name
    [ -e "$1/format" ] || return
    printf '%%s\n' 0 last
    for name in "$1"/checkpoints/*.meta.*; do
        name=${name##*/} name=${name%%%%.*}
        [[ $name = *[!0-9]* ]] || printf '%%s\n' "$name"   # compgen -W expands what it is given
    done
}
_metamori_offer() {  # KIND WORD STORE
    local names
    case "$1" in
        none) ;;
        dir) compopt -o dirnames ;;   # readline's own: it quotes what a name may hold
        file) compopt -o default ;;
        command) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -c -- "$2") ;;
        signal) names=$(compgen -A signal SIG); _metamori_words "$names ${names//SIG/}" "$2" ;;
        index) _metamori_words "$(_metamori_indexes "$3")" "$2" ;;
        picture) _metamori_words "%(pictures)s" "$2"; [ "$COMPREPLY" ] || compopt -o default ;;
        *) _metamori_words "$1" "$2" ;;
    esac
}
_metamori_words() {  # WORDS WORD
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}
_metamori() {
    local word="${COMP_WORDS[COMP_CWORD]}" verb="${COMP_WORDS[1]}" store="${METAMORI_STORE:-.metamori}"
    local each options="" kinds=() rest=none before="" number=0 i
    local -A takes=()
    if [ "$COMP_CWORD" = 1 ]; then
        _metamori_words "%(verbs)s --help --version" "$word"
        return
    fi
    case "$verb" in
%(cases)s
    esac
    for ((i = 2; i < COMP_CWORD; i++)); do
        each=${COMP_WORDS[i]}
        if [ "$each" = = ]; then
            continue
        elif [ "$verb $each" = "run --" ]; then   # after it is the command's own line
            each=file
            [ "$i" = $((COMP_CWORD - 1)) ] && each=command
            _metamori_offer "$each" "$word"
            return
        elif [ -n "$before" ]; then
            [ "$before" = --store ] && store=${each/#\~/$HOME}
            before=""
        elif [ -n "${takes[$each]}" ]; then
            before=$each
        elif [[ $each != -* ]]; then
            number=$((number + 1))
        fi
    done
    [ "$word" = = ] && word=""
    if [ -n "$before" ]; then
        _metamori_offer "${takes[$before]}" "$word" "$store"
    elif [[ $word = -* ]]; then
        _metamori_words "$options" "$word"
    else
        _metamori_offer "${kinds[number]:-$rest}" "$word" "$store"
    fi
}
complete -o nosort -F _metamori metamori
"""


def bash(verbs: Verbs, about: dict[str, str]) -> str:
    lines = []
    for verb, parser in verbs.items():
        names = " ".join(name for action in options(parser) for name in action.option_strings)
        takes = " ".join(f"['{name}']='{kind(action)}'" for action in options(parser) if action.nargs != 0
                         for name in action.option_strings)
        kinds = " ".join(f"'{kind(action)}'" for action in places(parser) if action.nargs != "*")
        rest = "".join(f" rest='{kind(action)}'" for action in places(parser) if action.nargs == "*")
        lines.append(f'        {verb})\n            options="{names}"\n            takes=({takes})\n'
                     f"            kinds=({kinds}){rest} ;;")
    return BASH % {"cases": "\n".join(lines), "verbs": " ".join(verbs), "pictures": PICTURES}


# -- fish ------------------------------------------------------------------------------------------------------------

FISH = r"""# fish completion for metamori; made from its parsers
function __metamori_at -a verb number -d 'whether the word at the cursor is argument NUMBER of VERB, or one after 1+'
    set -l takes $argv[3..]
    set -l words (commandline -opc)
    test "$words[2]" = $verb; or return 1
    set -l before
    set -l seen 0
    for each in $words[3..]
        if test -n "$before"
            set before
        else if contains -- $each $takes
            set before $each
        else if test $each = --
            return 1
        else if not string match -q -- '-*' $each
            set seen (math $seen + 1)
        end
    end
    test -z "$before"; or return 1
    test $seen = $number; or string match -q '*+' $number; and test $seen -ge (string trim -c + $number)
end
function __metamori_indexes
    set -l store .metamori
    set -q METAMORI_STORE; and set store $METAMORI_STORE
    set -l words (commandline -opc)
    if set -l at (contains -i -- --store $words)
        set store (string replace -r '^~' $HOME $words[(math $at + 1)])
    end
    test -e $store/format; or return
    set -l known $store/checkpoints/*.meta.*
    string match -rg '/(\d+)\.meta\.\d+$' -- $known | sort -n
    printf '%s\n' 0 last
end
"""


def fish(verbs: Verbs, about: dict[str, str]) -> str:
    def quote(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    listed = {"dir": "-f -a '(__fish_complete_directories)'", "file": "-F", "command": "-F", "none": "-f",
              "index": "-f -k -a '(__metamori_indexes)'", "picture": f"-F -a {quote(PICTURES)}",
              "signal": "-f -a '(__fish_make_completion_signals; string split -f 2 \" \" -- $__kill_signals)'"}

    def given(action: argparse.Action) -> str:
        return listed.get(kind(action), f"-f -a {quote(kind(action))}")

    lines = [FISH.rstrip()]
    lines += [f"complete -c metamori -n __fish_use_subcommand -f -a {verb} -d {quote(what)}"
              for verb, what in about.items()]
    for verb, parser in verbs.items():
        takes = " ".join(name for action in options(parser) if action.nargs != 0 for name in action.option_strings)
        for action in options(parser):
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                             for name in action.option_strings)
            value = "" if action.nargs == 0 else f" -r {given(action)}"
            lines.append(f"complete -c metamori -n '__fish_seen_subcommand_from {verb}' {names}{value} "
                         f"-d {quote(brief(action))}")
        for number, action in enumerate(places(parser)):
            if action.nargs == "...":
                lines.append(f"complete -c metamori -n '__fish_seen_subcommand_from {verb}' -f "
                             "-a '(__fish_complete_subcommand --fcs-skip=2)'")
            else:
                place = f"{number}+" if action.nargs == "*" else number
                lines.append(f"complete -c metamori -n '__metamori_at {verb} {place} {takes}' {given(action)}")
        if not places(parser):
            lines.append(f"complete -c metamori -n '__fish_seen_subcommand_from {verb}' -f")
    return "\n".join(lines) + "\n"


# -- zsh -------------------------------------------------------------------------------------------------------------

ZSH = r"""#compdef metamori
# made from the parsers of its verbs
_metamori_indexes() {
    local store=${opt_args[--store]:-${METAMORI_STORE:-.metamori}}
    store=${~store}
    [[ -e $store/format ]] || return 1
    local -a known=($store/checkpoints/<->.meta.*(N:t))
    known=(${(nu)known%%.*} 0 last)
    compadd -V indexes -a known
}
_metamori_pictures() {
    compadd PICTURES
    _files
}
""".replace("PICTURES", PICTURES)


def zsh(verbs: Verbs, about: dict[str, str]) -> str:
    listed = {"dir": "_files -/", "file": "_files", "command": "_normal", "none": " ", "index": "_metamori_indexes",
              "picture": "_metamori_pictures", "signal": "_signals"}

    def given(action: argparse.Action) -> str:
        return listed.get(kind(action), f"({kind(action)})")

    def specs(parser: argparse.ArgumentParser) -> Iterator[str]:
        for action in options(parser):
            text = re.sub(r"([\[\]:'\\])", lambda found: "'\\''" if found[1] == "'" else "\\" + found[1],
                          brief(action))
            value = "" if action.nargs == 0 else f":{action.metavar or action.dest}:{given(action)}"
            for name in action.option_strings:      # --name VALUE and --name=VALUE
                yield f"'{name}{'=' if value and name.startswith('--') else ''}[{text}]{value}'"
        for number, action in enumerate(places(parser), 1):
            place = "*::" if action.nargs == "..." else "*" if action.nargs == "*" else str(number)
            yield f"'{place}:{action.metavar}:{given(action)}'"

    lines = [ZSH + "local curcontext=$curcontext context state line", "local -A opt_args", "local -a verbs", "verbs=("]
    lines += [f"  '{verb}:{what.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'" for verb, what in about.items()]
    lines += [")", "if (( CURRENT == 2 )); then _describe verb verbs; return; fi", "case $words[2] in"]
    lines += [f"  {verb}) shift words; (( CURRENT-- )); _arguments -S {' '.join(specs(parser))} ;;"
              for verb, parser in verbs.items()]
    return "\n".join([*lines, "esac", ""])
