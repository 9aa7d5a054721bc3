"""The scope of a run, as rules for the C side (shim_c/src/area/scope.c), and what was written out of it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping

from metamori._area import ffi, lib
from metamori.errors import MetamoriError
from metamori.runtime.area.run_area import Area
from metamori.store.read.scope import Pattern, Scope

IGNORE_FILE = b".metamoriignore"
_KERNELS = (b"/proc", b"/sys", b"/dev", b"/run")
_TEMPORARY = (b"/tmp", b"/var/tmp")
_CACHES = (b".cache", b".ccache", b".npm", b".cargo/registry", b".gradle/caches", b".m2/repository")
_SESSIONS = (b"ompi.", b"prte.", b"pmix", b"openmpi-sessions-")   # of MPI libraries, in the temporary folder
_RULE = struct.Struct("=HHHH")
_LONGEST = 4095


def install(area: Area, data: bytes) -> None:
    """What `rules` says, before the run has processes."""
    failed = lib.mm_scope_set(area.pointer, data, len(data))
    if failed < 0:
        raise OSError(-failed, os.strerror(-failed), area.path)


def has(rules: bytes, path: bytes) -> bool:
    """Whether these rules track what lies there."""
    return bool(lib.mm_rules_have(ffi.cast("struct mm_rule *", ffi.from_buffer(rules)), path))


def rules(scope: Scope, environ: Mapping[bytes, bytes]) -> bytes:
    """Folders, the longest path first, and patterns, as struct mm_rule of area/layout.h says."""
    tracked = {folder.rstrip(b"/") for folder in scope.folders}
    temporary = {*_TEMPORARY, *filter(None, [_real(environ.get(b"TMPDIR", b""))])}
    left_out = set(_KERNELS)
    if not scope.is_everything:
        left_out |= temporary | set(_caches(environ))
    sessions = {folder + b"/" + name for folder in temporary for name in _SESSIONS}
    kinds = [(lib.MM_RULE_IN, tracked), (lib.MM_RULE_OUT, left_out - tracked), (lib.MM_RULE_BEGINS, sessions)]
    folders = [(folder, kind) for kind, paths in kinds for folder in paths
               if kind == lib.MM_RULE_IN or _is_below_any(folder, tracked)]
    folders.sort(key=lambda each: (-len(each[0]), each))
    found = [_rule(kind, folder) for folder, kind in folders]
    for pattern in (*_of_files(scope), *scope.patterns):
        found += _pattern(pattern)
    return b"".join((*found, _rule(lib.MM_RULE_END)))


def _is_below_any(path: bytes, folders: set[bytes]) -> bool:
    return any(path.startswith(folder + b"/") for folder in folders)


def _real(path: bytes) -> bytes:
    return os.path.realpath(path) if path.startswith(b"/") else b""


def _caches(environ: Mapping[bytes, bytes]) -> Iterator[bytes]:
    home = _real(environ.get(b"HOME", b""))
    if home and home != b"/":
        yield from (home + b"/" + name for name in _CACHES)
    if cache := _real(environ.get(b"XDG_CACHE_HOME", b"")):
        yield cache


def _of_files(scope: Scope) -> Iterator[Pattern]:
    """The lines of the .metamoriignore of each tracked folder."""
    for folder in scope.folders:
        path = os.path.join(folder, IGNORE_FILE)
        try:
            with open(path, "rb") as file:
                lines = file.read().split(b"\n")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise MetamoriError(f"{os.fsdecode(path)} cannot be read: {error.strerror}") from None
        yield from (Pattern(folder.rstrip(b"/"), line) for line in lines)


def _pattern(pattern: Pattern) -> list[bytes]:
    """Its rule; none of an empty line or a comment."""
    text = pattern.text.rstrip(b"\r")
    while text.endswith(b" ") and not text.endswith(b"\\ "):
        text = text[:-1]
    if not text or text.startswith(b"#"):
        return []
    kind = lib.MM_RULE_EXCLUDE
    if text.startswith(b"!"):
        kind, text = lib.MM_RULE_INCLUDE, text[1:]
    text = text.rstrip(b"/")
    if b"/" not in text:
        kind |= lib.MM_RULE_ANYWHERE
    text = text.removeprefix(b"/")
    return [_rule(kind, pattern.folder, text)] if text else []


def _rule(kind: int, folder: bytes = b"", pattern: bytes = b"") -> bytes:
    if max(len(folder), len(pattern)) > _LONGEST:
        raise MetamoriError(f"a path or a pattern of the scope is longer than {_LONGEST} bytes")
    length = -(-(_RULE.size + len(folder) + len(pattern) + 2) // 8) * 8
    return (_RULE.pack(kind, len(folder), len(pattern), length) + folder + b"\0" + pattern).ljust(length, b"\0")


def outside(area: Area) -> tuple[int, list[tuple[bytes, int]]]:
    """How many files the run wrote out of its scope, and in which folders most of them are."""
    found = [(bytes(ffi.string(each.folder)) or b"/", int(each.files)) for each in area.head.outside if each.files]
    return int(area.head.outside_files), sorted(found, key=lambda each: (-each[1], each[0]))


def outside_text(count: int, folders: list[tuple[bytes, int]], most: int = 3) -> str:
    """`12 files (8 in /root/.npm, 4 in /tmp)`; "" when there are none."""
    if not count:
        return ""
    parts = [f"{files} in {os.fsdecode(folder)}" for folder, files in folders[:most]]
    rest = count - sum(files for _, files in folders[:most])
    if rest > 0:
        parts.append(f"{rest} elsewhere")
    return f"{count} file{'s' * (count != 1)} ({', '.join(parts)})"
