"""Static programs: each call that changes attributes or names, what busybox edits, and branches of a history."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab
from test_static_programs import BUSYBOX, OPTIONS, every_index, is_static, prepare

STEPS = [*"1234567"] if os.geteuid() == 0 else [*"123456"]
LONG_AGO = 1_100_000_000               # a time before this was set, and is no moment of the test

Attributes = dict[str, tuple[object, ...]]


def attributes(folder: Path) -> Attributes:
    """Of all names, as far as two runs have them in common."""
    found: Attributes = {}
    for path in sorted(folder.iterdir()):
        st = path.lstat()
        if path.name.startswith("."):
            continue
        link, regular = stat.S_ISLNK(st.st_mode), stat.S_ISREG(st.st_mode)
        kept = {name: os.getxattr(path, name) for name in os.listxattr(path)} if regular else {}
        content = os.readlink(path).encode() if link else path.read_bytes() if regular else b""
        found[path.name] = (oct(st.st_mode), st.st_uid, st.st_gid, content, kept,
                            st.st_mtime_ns if regular and st.st_mtime < LONG_AGO else None)
    return found


@OPTIONS
@pytest.mark.parametrize("linked", [["static"], []], ids=["static", "dynamic"])
def test_every_call(lab: Lab, native_lab: Lab, compiled: Compile, linked: list[str], options: list[str]) -> None:
    """Modes, owners, times and extended attributes go back to any index too."""
    program = compiled("attributes", *linked)
    prepare(native_lab)
    wanted = [attributes(native_lab.work)]
    for step in STEPS:
        assert native_lab.run([program, step], native=True).returncode == 0
        wanted.append(attributes(native_lab.work))
    assert len({str(each) for each in wanted}) == len(wanted)
    prepare(lab)
    checkpoint = " ".join(lab.argv("checkpoint"))
    done = lab.run([BUSYBOX or "sh", *(["sh"] if BUSYBOX else []), "-c",
                    "; ".join(f"{program} {step} || exit 9; {checkpoint} > /dev/null" for step in STEPS)], *options)
    assert (done.returncode, done.stderr) == (0, b"")
    assert attributes(lab.work) == wanted[-1]
    indexes = range(len(wanted)) if "single" not in options else []
    for index in [*reversed(indexes), *indexes[1:]]:
        lab.restore(index)
        assert attributes(lab.work) == wanted[index], index
    lab.verb("verify")


@OPTIONS
def test_busybox_edits(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    steps = [
        f"{BUSYBOX} vi -c ':%s/first/edited/' -c ':wq' log < /dev/null > /dev/null 2>&1; cat log",
        f"{BUSYBOX} vi -c ':1d' -c ':w new' -c ':q!' log < /dev/null > /dev/null 2>&1; ls; echo more >> log",
        f"{BUSYBOX} sed -i -e s/more/less/ -e 1i\\\\head log"
        f"; {BUSYBOX} dd if=log of=old bs=7 seek=3 conv=notrunc 2> /dev/null",
    ]
    every_index(lab, native_lab, [BUSYBOX, "sh"], steps, options)


def test_branches(lab: Lab) -> None:
    """From an old index on a static shell makes another history: both stay, each as it was."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    prepare(lab)
    states = {0: lab.state()}

    def goes_on(script: str) -> None:
        done = lab.run([BUSYBOX, "sh", "-c", script])
        assert (done.returncode, done.stderr) == (0, b"")
        states[lab.log()["head"]] = lab.state()

    goes_on("echo one > new; echo one >> log; rm old")
    goes_on("mv new newer; chmod 600 log; echo two > log")
    first, second = sorted(states)[1:]
    lab.restore(first)
    goes_on("cat new >> log; mkdir d; mv new d")
    lab.restore(0)
    goes_on("echo three | dd of=old bs=1 seek=100 conv=notrunc 2> /dev/null; ln log link")
    for index in [*sorted(states), *sorted(states, reverse=True), second, *sorted(states)[3:], first]:
        lab.restore(index)
        lab.assert_state(states[index], f"checkpoint {index}")
    parents = {each["index"]: each["parent"] for each in lab.log()["checkpoints"]}
    assert [parents[index] for index in sorted(states)[1:]] == [0, first, first, 0]
    lab.verb("verify")
