"""What is only seen by taking it is put back, also when `metamori run` is killed in between: a child does it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable


def done(work: Callable[[], bytes]) -> bytes:
    """Its result, by a child in a session of its own. OSError, as it failed there."""
    result = os.memfd_create("apart", os.MFD_CLOEXEC)
    try:
        child = os.fork()
        if child == 0:
            number = errno.EIO
            try:
                os.setsid()
                with open(result, "wb", closefd=False) as file:
                    file.write(work())
                number = 0
            except OSError as error:
                number = error.errno or errno.EIO
            finally:
                os._exit(number)
        number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if number:
            number = number if number > 0 else errno.EINTR     # killed
            raise OSError(number, os.strerror(number))
        return os.pread(result, os.fstat(result).st_size, 0)
    finally:
        os.close(result)
