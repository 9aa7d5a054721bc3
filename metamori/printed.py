"""How names and messages of others are printed: no byte of theirs moves a cursor, or looks like a line of ours."""

from __future__ import annotations

import os
import sys
import unicodedata

_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\x1b": "\\e", "\\": "\\\\", "'": "\\'"}
_UNSEEN = ("Cc", "Cs", "Zl", "Zp")         # controls, bytes that are no UTF-8, ends of lines
_TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"   # the direction of what follows


def _is_unseen(letter: str) -> bool:
    if letter.isascii():
        return letter < " " or letter == "\x7f"
    return letter in _TURNING or unicodedata.category(letter) in _UNSEEN


def name_text(name: bytes | str) -> str:
    """As it is; where a letter of it is not to be seen, or no UTF-8, as a shell takes it back: $'a\\nb'."""
    text = os.fsdecode(name)
    if not any(map(_is_unseen, text)):
        return text
    return "$'" + "".join(_SHORT.get(letter) or (_escaped(letter) if _is_unseen(letter) else letter)
                          for letter in text) + "'"


def word_text(word: str) -> str:
    """In a line that a person may paste into a shell."""
    import shlex  # it takes `re`

    text = name_text(word)
    return text if text != word else shlex.quote(word)


def line_text(text: str) -> str:
    """A message of one line, whatever names are in it."""
    return "".join(_SHORT.get(letter, _escaped(letter)) if _is_unseen(letter) else letter for letter in text)


def _escaped(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:           # a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_progress = False                          # a line of progress is on the terminal


def progress(text: str) -> None:
    """A line on standard error, a terminal, that the next line replaces. Not from the background."""
    global _progress
    try:
        if os.tcgetpgrp(2) != os.getpgrp():
            return
    except OSError:
        pass                               # another's terminal: nobody there is in the background
    width = os.get_terminal_size(2).columns if os.isatty(2) else 0
    sys.stderr.write(f"\r\x1b[K{cut(text, width - 1) if width > 1 else text}")
    sys.stderr.flush()
    _progress = True


def clear_progress() -> None:
    global _progress
    if _progress:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
        _progress = False


def say(text: str) -> None:
    """A line for a person. Where it cannot be written, the exit status still says the rest."""
    try:
        clear_progress()
        sys.stderr.write(f"metamori: {line_text(text)}\n")
    except OSError:
        pass


def columns(text: str) -> int:
    """How many columns of a terminal it takes."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def cut(text: str, width: int) -> str:
    """No wider than `width` columns; what is left out is shown by …"""
    if columns(text) <= width:
        return text
    taken, room = "", width - 1
    for letter in text:
        room -= _columns_of(letter)
        if room < 0:
            break
        taken += letter
    return taken + "…" if width > 0 else ""


def cut_start(text: str, width: int) -> str:
    """As `cut`; it is the start that is left out, as of a path whose end says more."""
    return text if columns(text) <= width else cut(text[::-1], width)[::-1]
