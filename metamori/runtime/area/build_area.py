"""Builds metamori._area: the run area's C side, for Python."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import cffi

_spec = importlib.util.spec_from_file_location("metamori_cdef", Path(__file__).with_name("cdef.py"))
assert _spec is not None and _spec.loader is not None
_cdef = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_cdef)

ffibuilder = cffi.FFI()
for _header in ("area/layout.h", "base/crc.h", "process/stream_state.h", "process/runtime.h"):
    ffibuilder.cdef(_cdef.declarations(_header), packed=False)
ffibuilder.cdef("int syncfs(int fd); long mm_rename_new(const char *from, const char *to);")
ffibuilder.set_source(
    "metamori._area",
    """
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "area/layout.h"
#include "base/crc.h"
#include "process/stream_state.h"
#include "process/runtime.h"

/* RENAME_NOREPLACE, which old C libraries have no call for: 0 or -errno. */
static long mm_rename_new(const char *from, const char *to)
{
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 1u) < 0 ? -errno : 0;
}
""",
)

if __name__ == "__main__":
    ffibuilder.compile(verbose=True)
