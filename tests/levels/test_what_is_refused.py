"""What the levels say of settings, processes and variables that do not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

from metamori.errors import Usage
from metamori.levels.setup import settings, topology, variables


@pytest.mark.parametrize(("text", "said"), [
    ("[nowhere]", "config.fti:1: there is no section [nowhere]"),
    ("[basic]\nwords", "config.fti:2: neither a section nor 'key = value': words"),
    ("[basic]\nnode_sise = 2", "config.fti:2: FTI has no key 'node_sise'"),
    ("[basic]\nnode_size = two", "config.fti:2: node_size must be a whole number, 1 or more, not 'two'"),
    ("[basic]\nckpt_dir =", "config.fti:2: ckpt_dir needs a value, not ''"),
    ("[basic]\nckpt_io = 2\nenable_dcp = 1", "config.fti:3: differential checkpoints need ckpt_io = 1 or 3, not "),
    ("[basic]\nckpt_io = 3\n[metamori]\nnode_stores = 1",
     "config.fti:4: files are carried with ckpt_io = 1 or 2, not "),
])
def test_settings(text: str, said: str) -> None:
    with pytest.raises(Usage) as caught:
        settings.parse(text)
    assert str(caught.value).startswith(said)


def test_processes_that_fill_no_nodes() -> None:
    plan = replace(settings.Settings(), node_size=2, group_size=1, local_test=1)
    with pytest.raises(Usage, match="3 processes do not fill nodes of node_size = 2"):
        topology.arrange(["a"] * 3, plan)
    with pytest.raises(Usage, match=r"node a has 3 processes, and node_size = 2 \(local_test = 0\)"):
        topology.arrange(["a", "a", "a", "b"], replace(plan, local_test=0))


def test_variables() -> None:
    with pytest.raises(Usage, match="int has no buffer to protect"):
        variables.view(1)
    with pytest.raises(Usage, match="a read-only buffer cannot be recovered"):
        variables.view(b"abc")
    with pytest.raises(Usage, match="only contiguous memory can be protected without copies"):
        variables.view(numpy.zeros((4, 4))[:, 1])
