"""No room for an image: the checkpoint fails with a message, the program goes on, the next image is complete again."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from comeback import Memory
from lab import wait_until

sys.path.append(str(Path(__file__).resolve().parents[1] / "disk"))

from disks import NoMount, fill, mounted

pytestmark = pytest.mark.usefixtures("installed")

PROGRAM = """
import hashlib, os, time
data, state = bytearray(6 << 20), b"0"
for i in range(0, len(data), 4096):
    data[i] = i % 251
print("ready", flush=True)
while not os.path.exists("go"):            # nothing but time depends on how often
    time.sleep(0.02)
for i in range(3000):
    state = hashlib.sha256(state * 50).digest()
    data[(state[0] * 256 + state[1]) * 64] = state[2]
    if i % 500 == 0:
        print(i, state.hex(), flush=True)
print(hashlib.sha256(data).hexdigest())
"""


def base_of(case: Memory, index: int) -> int:
    shown = case.verb("show", "--json", str(index))
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)["memory"][0]["base"]


def test_the_program_goes_on_and_the_next_image_is_complete(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    (tmp_path / "small").mkdir()
    case = Memory(tmp_path, ["/usr/bin/python3", script], setup={"go": b""})
    (case.work / "go").unlink()
    try:
        with mounted(tmp_path / "small", "tmpfs", 64) as disk:
            case.store = disk / "store"
            run = case.start()
            try:
                wait_until(lambda: b"ready" in (tmp_path / "out").read_bytes(), "the program is ready")
                for _ in range(2):
                    assert case.verb("checkpoint").returncode == 0, case.errors()
                filler = fill(disk, 4096)
                for _ in range(2):
                    failed = case.verb("checkpoint")
                    assert failed.returncode == 1 and b"No space left on device" in failed.stderr, failed
                filler.unlink()
                for _ in range(2):
                    assert case.verb("checkpoint").returncode == 0, case.errors()
                assert case.images() == [1, 2, 3, 4]
                (case.work / "go").touch()
                assert run.wait(300) == case.native.status, case.errors()
            finally:
                run.kill()
            assert (tmp_path / "out").read_bytes() == case.native.output
            assert [base_of(case, index) for index in (1, 2, 3, 4)] == [0, 1, 0, 3]
            for index in (4, 3, 2, 1):
                case.goes_on(index)
            assert case.verb("verify").returncode == 0
            shutil.rmtree(case.store)
    except NoMount as why:
        pytest.skip(str(why))
