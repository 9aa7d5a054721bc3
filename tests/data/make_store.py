"""Makes the kept store of the present format version: python tests/data/make_store.py

Done once for each version that is released; until then it may be made again when the format changes. The store
holds absolute paths, so it is made, and later unpacked, in PLACE.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

VERSION = 2
PLACE = Path("/tmp/metamori-kept-store")
ROOT = Path(__file__).resolve().parents[2]
JOB = """
import os, subprocess, sys
def checkpoint():
    subprocess.run([sys.executable, "-m", "metamori", "checkpoint"], check=True, stdout=subprocess.DEVNULL)
open("log", "a").write("one\\n" * 400)
checkpoint()
fd = os.open("data", os.O_RDWR)
os.pwrite(fd, b"B" * 6000, 3000)
os.mkdir("d")
os.rename("gone", "d/came")
checkpoint()
os.pwrite(fd, b"C" * 100, 10)
os.truncate("log", 100)
os.symlink("data", "link")
os.unlink("d/came")
checkpoint()
os.chmod("data", 0o600)
os.pwrite(fd, b"D" * 5000, 20000)
open("log", "a").write("end\\n")
"""


def picture(folder: Path) -> dict[str, str]:
    """What a user sees below a folder, the store left out."""
    seen = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] == ".metamori":
            continue
        if path.is_symlink():
            seen[name] = f"link {os.readlink(path)}"
        elif path.is_dir():
            seen[name] = "folder"
        else:
            seen[name] = f"{path.stat().st_mode & 0o7777:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return seen


def metamori(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "metamori", *map(str, words)], cwd=PLACE, check=True,
                   env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)


def main() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(mode=0o700)
    (PLACE / "data").write_bytes(b"A" * 30000)
    (PLACE / "gone").write_bytes(b"moved")
    metamori("run", "--", sys.executable, "-c", JOB)
    expected = {}
    for index in (2, 0, 3, 1, 4):
        metamori("restore", index)
        expected[index] = picture(PLACE)
    target = Path(__file__).resolve().parent / f"store-{VERSION}.tar.gz"
    with tarfile.open(target, "w:gz") as archive:
        text = json.dumps(expected, indent=1, sort_keys=True).encode()
        entry = tarfile.TarInfo("expected.json")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
        archive.add(PLACE, "place")
    shutil.rmtree(PLACE)
    print(target)


if __name__ == "__main__":
    main()
