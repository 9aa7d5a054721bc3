"""Every error that a person or a program can meet: the sentence, the exit code and the errno in one place.

The exit codes are those of the command line; the errno values are what the C API sets.
"""

from __future__ import annotations

import errno as _errno

RUN_FAILED = 125                           # what `run` answers where the other verbs have their codes


class MetamoriError(Exception):
    """Something failed; the message is one sentence for a person."""

    exit_code = 1
    errno = _errno.EIO
    passes = False                         # the same a moment later may go well


class Usage(MetamoriError):
    """The command line or a call was wrong."""

    exit_code = 2
    errno = _errno.EINVAL


class NoStore(MetamoriError):
    """There is no store at this place."""

    exit_code = 10
    errno = _errno.ENOENT


class StoreBusy(MetamoriError):
    """A live run, or another verb that writes, holds the store."""

    exit_code = 11
    errno = _errno.EBUSY


class Damaged(MetamoriError):
    """Bytes that have a checksum in the store and are missing or wrong."""

    exit_code = 12
    errno = _errno.EIO


class NoSuchCheckpoint(MetamoriError):
    """No checkpoint has this index, or it cannot be restored."""

    exit_code = 13
    errno = _errno.EINVAL


class ChangedOutside(MetamoriError):
    """Tracked files were changed by somebody other than the run; `paths` names them."""

    exit_code = 14
    errno = _errno.EBUSY

    def __init__(self, message: str, paths: tuple[bytes, ...] = ()) -> None:
        super().__init__(message)
        self.paths = paths


class NoLiveRun(MetamoriError):
    """The verb needs a live run and there is none."""

    exit_code = 15
    errno = _errno.ESRCH


_ALWAYS = {"cffi": "cffi", "_cffi_backend": "cffi", "sortedcontainers": "sortedcontainers"}
_LEVELS = ("numpy", "mpi4py", "xxhash", "h5py", "pyeclib")   # the extra `levels` of pyproject.toml


def sentence(error: Exception) -> str:
    """What a person reads of it: of a call that failed without its number, and with the name that it was given. That
    may be a descriptor's number, which tells nobody anything."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    if not error.filename or not isinstance(error.filename, (str, bytes)):
        return error.strerror
    from metamori.printed import name_text

    return f"{name_text(error.filename)}: {error.strerror}"


def missing(error: ImportError) -> str:
    """The sentence about a module that is not there or cannot be loaded, with the command that helps; "" for one that
    no package of ours promises."""
    name = error.name or _importing(error)
    top = name.partition(".")[0]
    if name.startswith("metamori._"):
        return f"{name} is not built; build it with: make build"
    if top not in _ALWAYS and top not in (*_LEVELS, "zmq"):
        return ""
    why = "is not installed" if isinstance(error, ModuleNotFoundError) else \
        f"cannot be loaded ({str(error).strip().partition(chr(10))[0]})"
    if top in _ALWAYS:
        return f"{_ALWAYS[top]} {why}; install it with: pip install {_ALWAYS[top]}"
    if top == "zmq":
        return f"pyzmq {why}; run --job needs it: pip install 'metamori[job]'"
    return f"{top} {why}; the levels need it: pip install 'metamori[levels]'"


def _importing(error: ImportError) -> str:
    """The module whose own code raised the error: numpy, when its compiled half does not fit, names none."""
    trace, name = error.__traceback__, ""
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", "")) or name
        trace = trace.tb_next
    return name
