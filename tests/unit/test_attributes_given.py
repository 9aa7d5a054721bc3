"""What a rollback inside the program gives back where the owner cannot come back."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from metamori.runtime.rollback import files_beside


@pytest.mark.parametrize("mode", [0o751, 0o6751])
def test_an_owner_that_only_root_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """Mode and time come back all the same, but no set-id bits for somebody else."""
    def refused(path: bytes, uid: int, gid: int) -> None:
        raise PermissionError

    path = tmp_path / "data"
    path.write_bytes(b"")
    path.chmod(0o600)
    monkeypatch.setattr(files_beside.REAL, "chown", refused)
    pif = SimpleNamespace(uid=os.getuid(), gid=os.getgid() + 1, mode=stat.S_IFREG | mode, mtime_ns=10**18)
    assert files_beside.give_attributes(os.fsencode(path), pif)
    assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_mtime_ns) == (0o751, 10**18)
