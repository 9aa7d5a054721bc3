"""What the C library of an older system has no symbol for: as good as this one's (shim_c/src/libc/old_libc.c)."""
from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "shim_c" / "src"
OLDEST = (2, 17)


def intercepted() -> set[str]:
    return set(re.findall(r"^CALL\(\w+, .*?, (\w+), \(", (SOURCE / "libc" / "calls.def").read_text(), re.M))


def versions() -> dict[str, tuple[int, ...]]:
    """Of each symbol of this machine's C library, the glibc that had it first."""
    where = subprocess.run(["gcc", "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True).stdout
    listed = subprocess.run(["nm", "-D", where.strip()], capture_output=True, text=True, check=True).stdout
    found: dict[str, tuple[int, ...]] = {}
    for name, version in re.findall(r" (\w+)@@?GLIBC_([\d.]+)$", listed, re.M):
        number = tuple(map(int, version.split(".")))
        found[name] = min(number, found.get(name, number))
    return found


def test_every_name_that_came_after_the_oldest_library_is_there() -> None:
    first = versions()
    newer = {name for name in intercepted() if first.get(name, (99,)) > OLDEST}
    assert {"stat", "statx", "close_range"} <= newer
    given = set(re.findall(r"^    OLD\((\w+),", (SOURCE / "libc" / "old_libc.c").read_text(), re.M))
    assert newer <= given <= intercepted(), newer ^ given


def test_each_of_them_does_what_this_library_does(tmp_path: Path) -> None:
    """tests/programs/beside_libc.c calls both of each name: same result, errno, bytes, and the same left behind."""
    program = tmp_path / "old_libc"
    command = ["gcc", "-std=gnu11", "-Wall", "-Werror", "-O1", f"-I{SOURCE}", f"-I{SOURCE.parent / 'include'}",
               str(ROOT / "tests" / "programs" / "beside_libc.c"), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run([program], cwd=work, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    given = set(re.findall(r"^    OLD\((\w+),", (SOURCE / "libc" / "old_libc.c").read_text(), re.M))
    assert set(done.stdout.split()) == given
    tried = set(re.findall(r"SAME\((\w+),", (ROOT / "tests" / "programs" / "beside_libc.c").read_text()))
    assert given <= tried
