"""An image is read back before its checkpoint is acknowledged: its tables always, all of it in the tests' build."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_image_merge import write

from metamori.runtime.memory import images
from metamori.store.format.records import Launch
from metamori.store.io.os_io import REAL
from metamori.store.read import image


def acknowledged(path: Path, crc: int, base: Path | None = None) -> bool:
    """What the writer left at path.tmp: whether a meta file would name it."""
    this = images.Image.__new__(images.Image)
    layout = SimpleNamespace(memory=lambda index, process: str(base).encode())
    meta = SimpleNamespace(memory=[SimpleNamespace(process=1, pid=1)])
    this.store = SimpleNamespace(door=REAL, layout=layout, meta=lambda index: meta)  # type: ignore[assignment]
    this.area = SimpleNamespace(pointer=None)  # type: ignore[assignment]
    this.path, this.final, this.number = str(path).encode() + b".tmp", str(path).encode(), 1
    this.slot = this.known = 1
    this.memory = SimpleNamespace(base=1 if base else 0, file_bytes=Path(f"{path}.tmp").stat().st_size, crc=crc,
                                  known_pid=1, threads=1, writer=0)
    this.launch, this.owner, this.mapped, this.descriptors = Launch(b"", (), (), b"", 0, ()), (0, 0), (), []
    try:
        this.written()
        this.keep()
    except images.Refused as error:
        this.drop()
        assert "was not saved as a whole" in str(error)
        assert not Path(f"{path}.tmp").exists() and not path.exists()
        return False
    return path.exists()


@pytest.mark.parametrize("checked", [False, True])
def test_what_cannot_be_restarted_is_not_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                      checked: bool) -> None:
    monkeypatch.setattr(images, "lib", SimpleNamespace(mm_memory_wait=lambda area, slot, timeout: 0))
    monkeypatch.setattr(images, "_reap", lambda pid: None)
    monkeypatch.delenv("METAMORI_CHECKED", raising=False)
    if checked:
        monkeypatch.setenv("METAMORI_CHECKED", "1")
    whole, pages = tmp_path / "whole", {1: 1, 2: 2, 5: 5}
    write(tmp_path / "whole.tmp", 1, 0, pages, set(pages))
    content = (tmp_path / "whole.tmp").read_bytes()
    crc, data = struct.unpack("<I", content[-4:])[0], image.read(REAL, str(whole).encode() + b".tmp").data
    assert acknowledged(whole, crc)
    other = tmp_path / "other"
    for wrong, refused in ((content[:data - 1], True),                         # cut short
                           (content[:3] + b"?" + content[4:], True),            # its head
                           (content[:data + 9] + b"?" + content[data + 10:], checked)):    # a page
        (tmp_path / "other.tmp").write_bytes(wrong)
        assert acknowledged(other, crc) is not refused
        other.unlink(missing_ok=True)
    # a page that exists and that neither it nor the one below has saved
    write(tmp_path / "other.tmp", 2, 1, {2: 9}, {1, 2, 7})
    assert not acknowledged(other, zlib.crc32((tmp_path / "other.tmp").read_bytes()[:-4]), whole)
    write(tmp_path / "other.tmp", 2, 1, {2: 9}, {1, 2})
    assert acknowledged(other, zlib.crc32((tmp_path / "other.tmp").read_bytes()[:-4]), whole)
