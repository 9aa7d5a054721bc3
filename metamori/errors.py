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
    """Bytes that the store vouches for are missing or wrong."""

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
