"""A shell that takes a checkpoint before each command line: run --each-command. It reads the files beside this."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from metamori.errors import Usage

_SHELLS = Path(__file__).resolve().parent
_UNREAD = {                                # with these it reads other files, or none
    "bash": ("-l", "--login", "--norc", "--posix", "--rcfile", "--init-file"),
    "zsh": ("-f", "--no-rcs", "--emulate"),
}


def prepared(command: list[str]) -> tuple[list[str], dict[str, str]]:
    """The shell's words, and what its environment has besides. Usage for another program."""
    shell = os.path.basename(command[0])
    if shell not in _UNREAD:
        raise Usage(f"--each-command is for bash and zsh, not for {command[0]}")
    wrong = next((word for word in command[1:] if word in _UNREAD[shell]), None)
    if wrong:
        raise Usage(f"--each-command cannot be combined with {shell} {wrong}")
    environ = {"METAMORI_EACH": sys.executable}
    if shell == "zsh":
        return command, environ | {"METAMORI_EACH_ZDOTDIR": os.environ.get("ZDOTDIR", ""),
                                   "ZDOTDIR": str(_SHELLS / "zsh")}
    environ |= {"METAMORI_EACH_BASH_ENV": os.environ.get("BASH_ENV", ""), "BASH_ENV": str(_SHELLS / "script.bash")}
    return [command[0], "--rcfile", str(_SHELLS / "interactive.bash"), *command[1:]], environ
