"""What a kernel built without namespaces has not is not asked for."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from metamori.runtime.memory import proc_inspect, proc_look


def test_a_kernel_without_namespaces_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    readlink, lexists = os.readlink, os.path.lexists

    def link(path: str) -> str:
        if path.endswith("/ns/user"):
            raise FileNotFoundError(path)
        return readlink(path)

    monkeypatch.setattr(os, "readlink", link)
    monkeypatch.setattr(os.path, "lexists", lambda path: not str(path).endswith("/ns/user") and lexists(path))
    proc_inspect._of_the_run.cache_clear()
    with open("/proc/self/status", "rb") as status:
        confined = proc_look.confined(status.read())
    here = SimpleNamespace(pid=os.getpid(), confined=confined, places=b"", users=[b"%d" % os.geteuid()] * 4,
                           groups=[b"%d" % os.getegid()] * 4, others=[b"%d" % group for group in os.getgroups()])
    try:
        proc_inspect.require_no_more_confined(here)    # type: ignore[arg-type]
    finally:
        proc_inspect._of_the_run.cache_clear()
