"""Functions of the C library that a program looks up in it, as ctypes, Java and .NET do: no way past the run."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from lab import Lab

CTYPES = """
import ctypes, ctypes.util, os, sys
library = ctypes.CDLL({"soname": "libc.so.6", "found": ctypes.util.find_library("c"), "none": None}[sys.argv[1]])
fd = os.open("old", os.O_RDWR)
print(library.pwrite(fd, b"X" * 4096, ctypes.c_size_t(4096), ctypes.c_long(4096)), library.unlink(b"gone"))
"""

BOUND_TO_ITSELF = """
import ctypes, os
fd = os.open("old", os.O_RDWR)
print(ctypes.CDLL("./writer.so", mode=os.RTLD_NOW | os.RTLD_DEEPBIND).put(fd))
"""

WRITER = """
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>
int put(int fd)
{
    char block[4096];
    memset(block, 'X', sizeof block);
    return (int)pwrite(fd, block, sizeof block, 4096);
}
"""

OTHER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t pwrite(int fd, const void *data, size_t count, off_t at)
{
    return ((ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite"))(fd, data, count, at);
}
int unlink(const char *path) { return ((int (*)(const char *))dlsym(RTLD_NEXT, "unlink"))(path); }
"""

FIRST = """
#define _GNU_SOURCE
#include <dlfcn.h>
int answer(void) { return 1; }
int next_answer(void) { int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "answer"); return next ? next() : 0; }
int next_version(void) { return dlvsym(RTLD_NEXT, "answer", "NONE_1.0") != 0; }
int first_answer(void) { return ((int (*)(void))dlsym(RTLD_DEFAULT, "answer"))(); }
int by_runpath(void) { return dlopen("libdeep.so", RTLD_NOW) != 0; }
"""

PROGRAM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int next_answer(void), next_version(void), first_answer(void), by_runpath(void), second(void);
static int fails(void *handle, const char *name)
{
    dlerror();
    void *found = dlsym(handle, name);
    return (dlerror() != NULL) * 2 + !found;
}
int main(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW), *self = dlopen(NULL, RTLD_NOW);
    printf("%d %d %d %d %d\\n", next_answer(), next_version(), first_answer(), by_runpath(), second());
    void *found = dlsym(libc, "pwrite");
    printf("%d %d %d\\n", found == dlsym(RTLD_DEFAULT, "pwrite"), found == (void *)pwrite,
           dlvsym(libc, "pwrite64", "GLIBC_2.2.5") == dlsym(self, "pwrite64"));
    printf("%d %d %d\\n", dlvsym(RTLD_DEFAULT, "pwrite", "GLIBC_2.2.5") == found,
           dlvsym(RTLD_DEFAULT, "strlen", "GLIBC_2.2.5") != NULL, dlvsym(RTLD_DEFAULT, "pwrite", "NONE_1.0") == NULL);
    printf("%d %d %d %d\\n", fails(libc, "pwrite"), fails(libc, "no such name"), fails(libc, "strlen"),
           fails(self, "answer"));
    printf("%d %d\\n", dlopen("no such library", RTLD_NOW) == NULL,
           dlopen("./deep/libdeep.so", RTLD_NOW | RTLD_DEEPBIND) != NULL);
    return 0;
}
"""


def library(folder: Path, name: str, source: str, *options: str) -> None:
    folder.mkdir(exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-xc", "-", "-o", folder / name, *options]
    subprocess.run(command, input=source.encode(), check=True)


def overwritten(lab: Lab, *command: str, run: Sequence[str] = ()) -> list[str]:
    """What a program prints that overwrites the second block of a file and removes another; both come back."""
    old = bytes(range(256)) * 64
    (lab.work / "old").write_bytes(old)
    (lab.work / "gone").write_bytes(b"gone")
    before = lab.state()
    done = lab.run([*run, *command], native=bool(run))
    assert (done.returncode, done.stderr) == (0, b"")
    assert (lab.work / "old").read_bytes() == old[:4096] + b"X" * 4096 + old[8192:]
    lab.restore(0)
    lab.assert_state(before, "restore 0")
    return done.stdout.decode().split()


@pytest.mark.parametrize("which", ["soname", "found", "none"])
def test_what_ctypes_finds_is_followed(lab: Lab, which: str) -> None:
    assert overwritten(lab, "/usr/bin/python3", "-c", CTYPES, which) == ["4096", "0"]


def test_what_is_found_behind_another_preloaded_library(lab: Lab) -> None:
    """In the C library's own handle its own function is found: not that of the one before it."""
    library(lab.work, "other.so", OTHER)
    preloaded = ["env", f"LD_PRELOAD={lab.work / 'other.so'}", *lab.argv("run"), "--"]
    assert overwritten(lab, "/usr/bin/python3", "-c", CTYPES, "soname", run=preloaded) == ["4096", "0"]


def test_a_library_that_binds_to_its_own_is_followed(lab: Lab) -> None:
    library(lab.work, "writer.so", WRITER)
    assert overwritten(lab, "/usr/bin/python3", "-c", BOUND_TO_ITSELF) == ["4096"]


def test_the_loader_knows_who_asks(lab: Lab) -> None:
    """The next definition is the one behind the caller's, and the caller's own folders are searched."""
    folder = lab.work
    library(folder / "deep", "libdeep.so", "int deep(void) { return 1; }")
    library(folder, "libfirst.so", FIRST, "-Wl,--enable-new-dtags,-rpath,$ORIGIN/deep")
    library(folder, "libsecond.so", "int answer(void) { return 2; } int second(void) { return 3; }")
    subprocess.run(["gcc", "-xc", "-", "-o", folder / "program", f"-L{folder}", "-lfirst", "-lsecond",
                    "-Wl,--enable-new-dtags,-rpath,$ORIGIN"], input=PROGRAM.encode(), check=True)
    native = lab.run(["./program"], native=True)
    assert native.stdout.decode().splitlines() == ["2 1 1 1 3", "1 1 1", "1 1 1", "0 3 0 0", "1 1"], native
    done = lab.run(["./program"])
    assert (done.returncode, done.stdout, done.stderr) == (0, native.stdout, b"")
