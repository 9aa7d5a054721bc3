"""config.fti: keys, spellings, errors with their line, and what is written back."""

from __future__ import annotations

import os

import pytest

from metamori.errors import Usage
from metamori.levels.setup import settings

MANUAL = """[Basic]
head                = 0
node_size           = 2
ckpt_dir            = /scratch/username/
glbl_dir            = /archive/project/
meta_dir            = /home/username/.fti/
ckpt_L1             = 3
ckpt_L2             = 5
ckpt_L3             = 7
ckpt_L4             = 11
inline_L2           = 1
keep_last_ckpt      = 1    # kept
group_size          = 4
max_sync_intv       = 0
ckpt_io             = 1
verbosity           = 2
[Restart]
failure             = 0
exec_id             = NULL
[Advanced]
block_size          = 1024
transfer_size       = 16
mpi_tag             = 2612
lustre_stripping_unit = 4194304
lustre_stiping_factor = -1
lustre_striping_offset = -1
local_test          = 1
"""


def test_manual_keys():
    made = settings.parse(MANUAL)
    assert (made.ckpt_dir, made.ckpt_l4, made.keep_last_ckpt, made.general_tag) == ("/scratch/username/", 11, 1, 2612)
    assert (made.lustre_striping_unit, made.lustre_striping_factor, made.exec_id) == (4194304, -1, "NULL")


def test_defaults_are_the_manuals():
    made = settings.parse("")
    assert (made.head, made.node_size, made.group_size, made.ckpt_l1, made.ckpt_l2, made.ckpt_l3, made.ckpt_l4) \
        == (0, 2, 4, 3, 5, 7, 11)
    assert (made.ckpt_dir, made.glbl_dir, made.meta_dir) == ("./Local", "./Global", "./Meta")
    assert (made.inline_l2, made.keep_last_ckpt, made.ckpt_io, made.dcp_block_size, made.verbosity) \
        == (1, 0, 1, 16384, 2)
    assert (made.ckpt_tag, made.stage_tag, made.final_tag, made.block_size, made.transfer_size, made.local_test) \
        == (711, 406, 3107, 1024, 16, 1)


@pytest.mark.parametrize("text, line, said", [
    ("[Basic]\nnode_size = 2\ngroup_sice = 4\n", 3, "group_sice"),
    ("[Basic]\nnode_size = two\n", 2, "whole number"),
    ("node_size = 0\n", 1, "1 or more"),
    ("\n\n[Basics]\n", 3, "section"),
    ("[Basic]\nckpt_dir =\n", 2, "value"),
    ("[Basic]\nckpt_io = 4\n", 2, "SIONlib"),
    ("[Basic]\nhead = 1\nnode_size = 1\n", 2, "node_size"),
    ("[Basic]\nckpt_io = 5\nenable_dcp = 1\n", 3, "differential"),
    ("[Basic]\nnonsense\n", 2, "key = value"),
    ("[Basic]\ndcp_block_size = 100\n", 2, "512"),
])
def test_mistakes_are_named_with_their_line(text, line, said):
    with pytest.raises(Usage) as found:
        settings.parse(text, "config.fti")
    assert str(found.value).startswith(f"config.fti:{line}:") and said in str(found.value)


def test_rewriting_changes_two_values_and_nothing_else():
    again = settings.rewritten(MANUAL, 1, "2026-11-21_10-00-00")
    changed = [(a, b) for a, b in zip(MANUAL.splitlines(), again.splitlines(), strict=True) if a != b]
    assert [b.split() for _, b in changed] == [["failure", "=", "1"], ["exec_id", "=", "2026-11-21_10-00-00"]]
    assert settings.rewritten(again, 0, "x").count("failure") == 1


def test_rewriting_adds_what_is_missing(tmp_path):
    path = tmp_path / "config.fti"
    path.write_text("[Basic]\nnode_size = 1\n[Restart]\nfailure = 0\n[Advanced]\nlocal_test = 1\n")
    path.chmod(0o640)
    settings.rewrite(str(path), 2, "abc")
    made = settings.read(str(path))
    assert (made.failure, made.exec_id, made.node_size, made.local_test) == (2, "abc", 1, 1)
    assert path.stat().st_mode & 0o777 == 0o640 and [each.name for each in tmp_path.iterdir()] == ["config.fti"]


def test_a_missing_file_is_said():
    with pytest.raises(Usage, match="No such file"):
        settings.read("/nowhere/config.fti")


def test_what_is_written_back_is_durable(tmp_path, monkeypatch):
    """Its name too: the folder is synced after the new file has taken it."""
    path = tmp_path / "config.fti"
    path.write_text(MANUAL)
    synced, fsync = [], os.fsync

    def noted(fd):
        synced.append((os.readlink(f"/proc/self/fd/{fd}"), "exec_id             = abc" in path.read_text()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    settings.rewrite(str(path), 2, "abc")
    assert synced[-1] == (str(tmp_path), True), synced
