"""A kernel that keeps no record of changed pages (older than 6.7, or forbidden): said, and every image is complete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from comeback import Memory

pytestmark = pytest.mark.usefixtures("installed")

PROGRAM = """
import hashlib
table, state = bytearray(4 << 20), b"1"
for i in range(120000):
    state = hashlib.sha256(state * 100).digest()
    table[(state[0] * 256 + state[1]) * 64] ^= state[2]
    if i % 3000 == 0:
        with open("lines", "a") as lines:
            print(i, state.hex(), file=lines)
print(hashlib.sha256(table).hexdigest())
"""
# as if there were no PAGEMAP_SCAN
FILTER = """
import ctypes, os, struct, sys
rules = b"".join(struct.pack("HBBI", *each) for each in ((32, 0, 0, 0), (21, 0, 3, 16), (32, 0, 0, 24),
                 (21, 0, 1, 0xC0606610), (6, 0, 0, 0x50019), (6, 0, 0, 0x7FFF0000)))
kept, prctl = ctypes.create_string_buffer(rules), ctypes.CDLL(None).prctl
prctl(38, 1, 0, 0, 0)
assert not prctl(22, 2, struct.pack("HxxxxxxQ", 6, ctypes.addressof(kept)))
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("within", [(), ("/usr/bin/python3", "-c", FILTER)], ids=["forbidden", "an older kernel"])
def test_every_image_is_complete_and_goes_on(tmp_path: Path, within: tuple[str, ...]) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    case = Memory(tmp_path, ["/usr/bin/python3", script])
    case.within = within
    case.added["METAMORI_MEMORY_CHANGES"] = "off"
    images = case.run_and_kill("80ms", 3)
    assert "every checkpoint will be a full image of the program's memory" in case.errors()
    for index in images:
        shown = json.loads(case.verb("show", "--json", str(index)).stdout)["memory"]
        assert [each["base"] for each in shown] == [0]
    case.everywhere(images)


def test_doctor_says_so(tmp_path: Path) -> None:
    case = Memory(tmp_path, ["true"])
    findings = {}
    for setting in ("on", "off"):
        case.added["METAMORI_MEMORY_CHANGES"] = setting
        done = case.verb("doctor", "--json", "/bin/cat")
        findings[setting] = {each["what"]: each["text"] for each in json.loads(done.stdout)["findings"]}
    assert "run --memory: yes" in findings["on"]["memory"] and "run --memory: yes" in findings["on"]["cat, memory"]
    assert "images are complete each time" in findings["off"]["memory"]
