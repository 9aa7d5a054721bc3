"""Builds libmetamori_rt.so: CPython embedded by cffi, loaded by the shim in a link namespace of its own."""

from __future__ import annotations

import sys

import cffi

_PREPARE = r"""
#include <Python.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

static wchar_t mm_python[4096];
static char mm_package[4096];

/* Before the first call: which Python this is and where the package lies.  The program's PYTHONHOME, PYTHONPATH
 * and the like are its own business and are not looked at. */
__attribute__((visibility("default"))) void metamori_rt_prepare(const char *package, const char *python)
{
    Py_IgnoreEnvironmentFlag = 1;
    Py_NoUserSiteDirectory = 1;
    Py_DontWriteBytecodeFlag = 1;
    strncpy(mm_package, package, sizeof mm_package - 1);
    if (!python)
        python = MM_BUILT_WITH;
    if (python && mbstowcs(mm_python, python, 4095) != (size_t)-1)
        Py_SetProgramName(mm_python);
}

static const char *mm_package_folder(void)
{
    return mm_package;
}
"""

_INIT = """
import os, sys
from _metamori_rt import ffi, lib
sys.path.insert(0, os.path.dirname(ffi.string(lib.mm_package_folder()).decode()))

@ffi.def_extern(error=-5)
def metamori_rt(what, argument, data, store):
    from metamori.runtime.inside import embed
    return embed.answer(what, argument, int(ffi.cast("intptr_t", data)), ffi.string(store))
"""


def emit(path: str) -> None:
    """Write the C file of the embedded runtime."""
    ffi = cffi.FFI()
    ffi.embedding_api("int metamori_rt(int what, long argument, void *data, const char *store);")
    ffi.cdef("const char *mm_package_folder(void);")
    ffi.set_source("_metamori_rt", f'#define MM_BUILT_WITH "{sys.executable}"\n{_PREPARE}')
    ffi.embedding_init_code(_INIT)
    ffi.emit_c_code(path)
