"""The C API of the preload library in this very process, for Python programs under `metamori run`."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any


def _library() -> Any:
    """The symbols that the preload library exports; None without it."""
    found = ctypes.CDLL(None, use_errno=True)
    return found if hasattr(found, "metamori_checkpoint_message") else None


def _call(name: str, *arguments: object) -> int:
    library = _library()
    if library is None:
        raise OSError(errno.ENOSYS, "this program does not run under metamori")
    ctypes.set_errno(0)
    result: int = getattr(library, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def checkpoint(message: str | None) -> int:
    text = (message or "").encode(errors="surrogateescape")
    if b"\0" in text:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return _call("metamori_checkpoint_message", text or None)


def restore(index: int) -> None:
    if ctypes.c_int(index).value != index:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    _call("metamori_restore", ctypes.c_int(index))


def active() -> bool:
    library = _library()
    return library is not None and library.metamori_active() == 1
