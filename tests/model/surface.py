"""Long random programs of file calls, natively and under Metamori: every line of their output must be the same.

By hand: `python tests/model/surface.py SEED [LENGTH] [OPTION...]` plays one, and makes a failing one small.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from lab import ROOT, Lab  # noqa: E402
from player import smaller  # noqa: E402

SOURCES = ["surface", "surface_data", "surface_names"]
_TREE = re.compile(rb"^checkpoint\ntree\n?((?:.*\n)*?)(?=^(?:\d+ |tree|checkpoint|$))", re.MULTILINE)
_SET_ID = re.compile(rb"\b10[1-7]([0-7]{3})\b")
_SOCKET = re.compile(rb"^  .* 14[0-7]{4} .*\n", re.MULTILINE)   # without a server they do not come back
_LINKS = re.compile(rb" x(\d+) ")


def without_our_links(have: bytes, want: bytes) -> bytes:
    """A file that lost one of several names may count the store's link to it after the run (docs/limits.md)."""
    wanted = {line.split(b" ")[2]: line for line in want.splitlines() if line[:2] == b"  "}
    lines = []
    for line in have.splitlines():
        same = wanted.get(line.split(b" ")[2]) if line[:2] == b"  " else None
        counts = [_LINKS.search(text) for text in (line, same or b"")]
        if same and counts[0] and counts[1] and int(counts[0][1]) == int(counts[1][1]) + 1:
            line = _LINKS.sub(counts[1][0], line, count=1)
        lines.append(line)
    return b"\n".join(lines)


def difference(native: bytes, followed: bytes, lines: int = 6) -> str:
    """The first lines that differ; nothing when all are the same."""
    if native == followed:
        return ""
    one, other = (text.decode(errors="backslashreplace").splitlines() for text in (native, followed))
    found = [line for line in difflib.unified_diff(one, other, "natively", "under Metamori", "", "", 0, "")]
    return "\n".join(line[:400] for line in found[: lines + 3])


def _modes(text: bytes) -> bytes:
    """An ordinary user's write takes set-user-id bits off at once, redirected at the commit (docs/limits.md)."""
    return text if os.geteuid() == 0 else _SET_ID.sub(rb"100\1", text)


def prepared(lab: Lab, program: Path) -> None:
    done = lab.run([program, "setup"], native=True)
    assert done.returncode == 0, done.stderr


def attempt(program: Path, seed: int, length: int, options: Sequence[str], kept: Sequence[int] | None = None) -> str:
    """Plays in fresh laboratories, then goes to each checkpoint; what is not as it should be, or nothing."""
    with tempfile.TemporaryDirectory(prefix="surface-") as folder:
        outputs = []
        words: list[object] = [program, "run", seed, length]
        if kept is not None:
            Path(folder, "kept").write_text(" ".join(map(str, kept)))
            words.append(Path(folder, "kept"))
        for name in ("native", "follow"):                 # as long as each other: paths have lengths
            Path(folder, name).mkdir()
            lab = Lab(Path(folder, name), program)
            prepared(lab, program)
            done = lab.run(words, *options, native=name == "native")
            text = _modes(done.stdout.replace(str(lab.folder).encode(), b"LAB"))
            if done.returncode or done.stderr:
                said = done.stderr.decode(errors="replace")[-1500:]
                return f"{name}: exit status {done.returncode}\n{said}\n{difference((outputs or [text])[0], text)}"
            outputs.append(text)
        return difference(*outputs) or ("" if "--mode=single" in options else restored(lab, program, outputs[1]))


def restored(lab: Lab, program: Path, output: bytes) -> str:
    """Each checkpoint's files, as the program saw them then, come back."""
    seen = [found[1] for found in _TREE.finditer(output)]
    messages = lab.messages()
    indexes = [index for index in sorted(messages) if index and messages[index] != "end of run"]
    if len(indexes) != len(seen):
        return f"{len(seen)} checkpoints seen, {indexes} in the log"
    for index, want in [*zip(indexes, seen)][::-1]:
        done = lab.verb("restore", index, code=None)
        if done.returncode:
            return f"restore {index}: exit status {done.returncode}\n{done.stderr}"
        have = _SOCKET.sub(b"", _modes(lab.run([program, "tree"], native=True).stdout))
        want = _SOCKET.sub(b"", want)
        want = want.strip(b"\n")
        wrong = difference(want, without_our_links(have.removeprefix(b"tree\n").strip(b"\n"), want))
        if wrong:
            return f"restore {index}\n{wrong}"
    return ""


def main(words: list[str]) -> int:
    options = [w for w in words if w.startswith("--") and w != "--whole"]
    numbers = [int(w) for w in words if w.isdigit()]
    seed, length = numbers[0], (numbers[1:] or [400])[0]
    program = Path(tempfile.gettempdir()) / f"metamori-surface-{os.getpid()}"
    sources = [str(HERE.parent / "programs" / f"{name}.c") for name in SOURCES]
    subprocess.run(["gcc", "-w", "-O1", f"-I{ROOT}/shim_c/include", *sources, "-o", str(program)], check=True)
    try:
        first = attempt(program, seed, length, options)
        print(first or "passes")
        if not first or "--whole" in words:
            return bool(first)
        lines = smaller([str(n) for n in range(length)], lambda some: first[:8] == attempt(
            program, seed, length, options, [int(n) for n in some])[:8], 150)
        print(" ".join(lines))
        print(attempt(program, seed, length, options, [int(n) for n in lines]))
        return 1
    finally:
        program.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
