"""Where nobody can tell which extended attributes something has, that is not the same as none: a restore would take
away those that it has."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest
from conftest import Compile
from lab import Lab

from metamori.cli.checkpoint import take
from metamori.errors import MetamoriError
from metamori.store.io import xattrs
from metamori.store.io.os_io import Door

LLISTXATTR, LGETXATTR = 195, 192           # numbers of the x86-64 kernel


@pytest.fixture
def file(lab: Lab) -> Path:
    path = lab.work / "f"
    path.write_bytes(b"f" * 100)
    path.chmod(0o640)
    os.setxattr(path, "user.note", b"text")
    return path


def failing(number: int):  # type: ignore[no-untyped-def]
    def fails(door: Door, path: bytes, name: str = "") -> None:
        raise OSError(number, os.strerror(number), path)

    return fails


@pytest.mark.parametrize("call", ["listxattr", "getxattr"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM])
def test_a_checkpoint_says_so(
        lab: Lab, file: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    session = lab.start()
    session.must(["chmod f 600"])
    with monkeypatch.context() as patch:
        patch.setattr(Door, call, failing(number))
        with pytest.raises((MetamoriError, OSError), match=os.strerror(number)):
            take(str(lab.store), "")
    index = take(str(lab.store), "")
    assert session.end() == 0
    for each in (0, index):
        lab.restore(each)
        assert os.getxattr(file, "user.note") == b"text"
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("call", ["listxattr", "getxattr"])
def test_what_has_none_or_may_not_be_read(
        file: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    for number in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.ENODATA, errno.ENOENT):
        monkeypatch.setattr(Door, call, failing(number))
        assert xattrs.read(os.fsencode(file)) == ()


@pytest.mark.parametrize("call", [LLISTXATTR, LGETXATTR])
def test_the_program_hears_of_it(lab: Lab, compiled: Compile, file: Path, call: int) -> None:
    """Before it changes what nobody could bring back."""
    refuse = [str(compiled("refuse")), str(call), str(errno.EIO), "0", "0", "0"]
    done = subprocess.run([*refuse, *lab.argv("run"), "--", "chmod", "600", "f"], cwd=lab.work, env=lab.env,
                          capture_output=True, text=True, check=False)
    assert "chmod: changing permissions of 'f': Input/output error" in done.stderr, done
    assert file.stat().st_mode & 0o777 == 0o640
