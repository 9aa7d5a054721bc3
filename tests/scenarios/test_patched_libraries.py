"""Shared libraries that are written to in part: the dynamic loader, which asks nobody, finds what a program would."""

from __future__ import annotations

import subprocess
import sys

import pytest
from lab import Lab
from test_looked_up_by_name import library

SOURCE = """
static const char pad[9000] = "pad";
const char *volatile keep = pad;
const char *tell(void) { return "told old"; }
"""
TELL = """
import ctypes
library = ctypes.CDLL("./lib.so")
library.tell.restype = ctypes.c_char_p
print(library.tell().decode(), flush=True)
"""
PATCH = """
import os, subprocess, sys
place = open("lib.so", "rb").read().find(b"told old")
def put(text, flags):
    fd = os.open("lib.so", flags)
    os.pwrite(fd, text, place)
    os.close(fd)
def tell():
    subprocess.run([sys.executable, "-c", sys.argv[1]])
"""
WRITTEN = PATCH + """
put(b"told one", os.O_WRONLY)
tell()
put(b"told two", os.O_RDWR)
tell()
"""
RESTORED = PATCH + """
import metamori
first = metamori.checkpoint()
put(b"told new", os.O_RDWR)
second = metamori.checkpoint()
for index in (first, second, first):
    metamori.restore(index)
    tell()
"""
OPTIONS = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=str)


def told(lab: Lab, script: str, options: list[str]) -> bytes:
    library(lab.work, "lib.so", SOURCE)
    assert subprocess.run([sys.executable, "-c", TELL], cwd=lab.work, capture_output=True).stdout == b"told old\n"
    done = lab.run([sys.executable, "-c", script, TELL], *options, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


@OPTIONS
def test_by_a_descriptor_that_cannot_read(lab: Lab, options: list[str]) -> None:
    """The head of the file, which says what it is, was asked for by that."""
    assert told(lab, WRITTEN, options) == b"told one\ntold two\n"


@OPTIONS
def test_after_a_restore_inside(lab: Lab, options: list[str]) -> None:
    assert told(lab, RESTORED, options) == b"told old\ntold new\ntold old\n"
