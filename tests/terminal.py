"""What a verb prints on a terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

from lab import Lab

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def printed(argv: list[str | bytes], lab: Lab, *, width: int, height: int = 1000, code: int | None = 0,
            errors: bool = False, raw: bool = False, **env: str) -> str:
    """Without its colours, unless raw. errors: standard error is this terminal too."""
    main, side = pty.openpty()
    fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    settings = {name: value for name, value in lab.env.items() if name not in ("COLUMNS", "LINES", "PAGER", "NO_COLOR")}
    child = subprocess.Popen(argv, cwd=lab.work, env=settings | {"TERM": "xterm"} | env, stdin=subprocess.DEVNULL,
                             stdout=side, stderr=side if errors else subprocess.PIPE)
    os.close(side)
    data = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:                    # the last one has closed it
            break
        if not piece:
            break
        data += piece
    os.close(main)
    _, said = child.communicate(timeout=120)
    assert code in (None, child.returncode), (data, said)
    text = data.decode(errors="surrogateescape").replace("\r\n", "\n")
    return text if raw else COLOUR.sub("", text)


def on_terminal(lab: Lab, verb: str, *words: object, **how: int | str) -> list[str]:
    """The lines that a verb prints."""
    return printed(lab.argv(verb, *words), lab, **how).splitlines()  # type: ignore[arg-type]
