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
for _header in ("area.h", "stream_state.h", "runtime.h"):
    ffibuilder.cdef(_cdef.declarations(_header), packed=False)
ffibuilder.cdef("int syncfs(int fd);")
ffibuilder.set_source(
    "metamori._area",
    '#include <unistd.h>\n#include "area.h"\n#include "stream_state.h"\n#include "runtime.h"\n',
)

if __name__ == "__main__":
    ffibuilder.compile(verbose=True)
