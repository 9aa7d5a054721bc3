"""Builds libmetamori_fti.so: FTI's C interface over the levels, Python embedded by cffi in the program's namespace."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import cffi

_PREPARE = r"""
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <Python.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

typedef int fti_id_t;
typedef int FTIT_type;
#define FTI_BUFS 256
%s

#define FTI_DATA __attribute__((visibility("default")))
FTI_DATA FTIT_type FTI_CHAR = 0, FTI_SHRT = 1, FTI_INTG = 2, FTI_LONG = 3, FTI_UCHR = 4, FTI_USHT = 5, FTI_UINT = 6;
FTI_DATA FTIT_type FTI_ULNG = 7, FTI_SFLT = 8, FTI_DBLE = 9, FTI_LDBE = 10;

static wchar_t mm_python[4096];
static char mm_package[4096];

/* The Python of the environment that the package is installed in, PREFIX/lib/python3.x/site-packages: other packages
 * are there too.  In a source tree the one that built it. */
static const char *mm_own_python(void)
{
    static char path[sizeof mm_package + 16];
    char *end[3];
    snprintf(path, sizeof path, "%%s", mm_package);
    for (int i = 0; i < 3; i++) {
        if (!(end[i] = strrchr(path, '/')))
            return MM_BUILT_WITH;
        *end[i] = 0;
    }
    if (strncmp(end[1] + 1, "python3", 7))
        return MM_BUILT_WITH;
    strcat(path, "/bin/python3");
    return access(path, X_OK) ? MM_BUILT_WITH : path;
}

/* Before Python starts: which one it is and where the package lies.  The program's PYTHONHOME and the like are its
 * own business. */
__attribute__((constructor)) static void mm_fti_prepare(void)
{
    Dl_info self;
    if (dladdr((void *)mm_fti_prepare, &self) && self.dli_fname && realpath(self.dli_fname, mm_package)) {
        for (int i = 0; i < 2; i++) {      /* the folder that holds the package */
            char *slash = strrchr(mm_package, '/');
            if (slash)
                *slash = 0;
        }
    }
    if (Py_IsInitialized())
        return;
    Py_IgnoreEnvironmentFlag = 1;
    Py_NoUserSiteDirectory = 1;
    Py_DontWriteBytecodeFlag = 1;
    if (mbstowcs(mm_python, mm_own_python(), 4095) != (size_t)-1)
        Py_SetProgramName(mm_python);
}

static const char *mm_fti_package(void)
{
    return mm_package;
}

static void *mm_fti_realloc(void *old, size_t size)
{
    return realloc(old, size);
}
"""

_INIT = """
import sys
from _metamori_fti import ffi, lib
sys.path.insert(0, ffi.string(lib.mm_fti_package()).decode())
from metamori.levels.api import capi
capi.register(ffi, lib)
"""

HEADER = Path(__file__).resolve().parents[3] / "shim_c" / "include" / "fti.h"


def declarations(header: str) -> tuple[str, str]:
    """The structures, and the functions that the library exports, as fti.h has them."""
    body = header[header.index("typedef int fti_id_t"):header.index("#define FTI_WEAK_")]
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    structs = "\n".join(re.findall(r"typedef (?:struct|enum) \w+ \{.*?\} \w+;", body, flags=re.S))
    functions = re.findall(r"^(?!typedef|extern)[\w ]+\*?(?:FTIM?_|fti_)\w+\([^;]*\);", body, flags=re.M)
    return structs, "\n".join(functions)


def names(header: str) -> list[str]:
    """The functions of the library."""
    return re.findall(r"((?:FTIM?_|fti_)\w+)\(", declarations(header)[1])


def emit(path: str) -> None:
    """Write the C file."""
    structs, functions = declarations(HEADER.read_text())
    plain = structs.replace("FTI_BUFS", "256")
    ffi = cffi.FFI()
    ffi.cdef("typedef int fti_id_t; typedef int FTIT_type;\n" + plain
             + "\nconst char *mm_fti_package(void); void *mm_fti_realloc(void *old, size_t size);")
    ffi.embedding_api(functions)
    ffi.set_source("_metamori_fti", f'#define MM_BUILT_WITH "{sys.executable}"\n' + _PREPARE % structs)
    ffi.embedding_init_code(_INIT)
    ffi.emit_c_code(path)
