"""The bench's plan can be run as it is written, and its page says what its JSON says."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from bench import machine, missed, mounts, plan, rows, run


@pytest.mark.parametrize("form", ["full", "quick", "tiny"])
def test_every_step_is_a_bench_with_options_that_it_knows(form: str) -> None:
    steps = plan.steps(form, run.BENCHES, ())
    for name, where, words in steps:
        assert run.parser().parse_args([name, "--dir", "/tmp", *words]).name == name
        assert where in ("", "tmpfs", *mounts.MAKE)
    missing = set(run.BENCHES) - {name for name, _, _ in steps}
    assert missing <= {"full": set(), "quick": {"breakdown", "levels"}, "tiny": {"breakdown", "levels"}}[form]
    assert not plan.steps(form, run.BENCHES, run.BENCHES)
    assert all(where != "xfs" for _, where, _ in plan.steps(form, run.BENCHES, ["xfs"]))


def series(**values: float) -> dict[str, dict[str, list[float]]]:
    return {name.replace("_", " "): {"all": [value, value + 1000, value - 1000]} for name, value in values.items()}


def document() -> dict:
    where = {"filesystem": "ext4", "processor": "P", "cores": 2, "memory_gib": 4, "kernel": "6", "commit": "c",
             "time": "t"}
    native = series(write=2000, rewrite=1000, CPU_s=3000) | {"a copy, CPU s": {"all": [1500]}, "MiB": {"all": [2000]},
                                                                "a copy, wall s": {"all": [4]}}
    ours, slower = series(write=2200, rewrite=800, CPU_s=5000), series(write=2000, rewrite=900, CPU_s=4000)
    new, over = "written new: wall s", "written over: wall s"
    kept = {kind: {new: {"all": [a]}, over: {"all": [b]}} for kind, a, b in (
        ("native", 1, 1), ("limit", 2, 4), ("default", 1.1, 5), ("isolate", 2.2, 5))}
    first, again, read = (f"old, 1 thread: {job}" for job in (
        "random write 4k", "random write again", "sequential read after it"))
    fio = {kind: {first: {"all": [a]}, again: {"all": [b]}, read: {"all": [c]}} for kind, a, b, c in (
        ("native", 10, 10, 10), ("limit", 5, 10, 10), ("metamori", 4, 9, 7.5))}
    pauses = {"pause, ms": {"all": [1.0, 1.5, 9.0]}, "call, ms": {"all": [30.0]}, "bytes added, MiB": {"all": [1.0]}}
    benches = [{"bench": "bonnie", "results": {"native": native, "default": ours,
                                               "--isolate, cache 0": ours, "--isolate, cache 25M": slower,
                                               "default, checkpoint every 2 s": ours}},
               {"bench": "kept", "results": kept}, {"bench": "fio", "results": fio},
              {"bench": "static", "results": {kind: {"chmod, us": {"all": [a]}, "mkdir or rmdir, us": {"all": [b]},
                                                     "first, ms": {"all": [b]}, "dd, CPU ms": {"all": [20.0]}}
                                              for kind, a, b in (("native", 1, 40), ("limit", 3.5, 39),
                                                                 ("metamori", 7, 61))}},
               {"bench": "checkpoint", "results": {"20 MiB, 1,024 KiB changed, 8 checkpoints": pauses}},
               {"bench": "peers", "results": {"full copy, 20 MiB": {"keep a state, ms": {"all": [7.0]},
                                                                   "MiB per state": {"all": [20.0]}}}}]
    return {"schema": 1, "form": "quick", "benches": [{**each, "machine": where, "options": {"rounds": "3"}}
                                                      for each in benches]}


def test_the_page_says_what_was_reached() -> None:
    said = {row.what: row[2:] for row in rows.rows(document())}
    assert said["Bonnie++ default: write"] == ("×1.00", "≥ ×0.87", "×1.10", True)
    assert said["Bonnie++ default: rewrite"] == ("×1.00", "≥ ×0.87", "×0.80", False)
    assert said["Bonnie++ default, checkpoint every 2 s: rewrite"] == ("×0.33", "≥ ×0.29", "×0.80", True)
    assert said["static program: chmod, added"] == ("2.5 us", "≤ 15 us", "6 us", True)
    assert said["static program: mkdir or rmdir, added"] == ("", "≤ 15 us", "21 us", False)
    assert said["static program: dd, CPU ms"][2] == "×1.00"
    assert not any("first" in what for what in said), "the start of a run's own process"
    assert said["Bonnie++ --isolate: rewrite"][2] == "×0.80", "of the slowest cache"
    assert said["Bonnie++ --isolate: CPU s"] == ("×0.67", "≥ ×0.58", "×0.60", True)
    assert said["kept file, written over, default"] == ("×0.25", "≥ ×0.22", "×0.20", False)
    assert said["kept file, written new, isolate"] == ("×0.50", "≥ ×0.43", "×0.45", True)
    assert said["fio, old, 1 thread: random writes"] == ("×0.50", "≥ ×0.43", "×0.40", False), "of the slowest job"
    assert said["fio, old, 1 thread: sequential read after it"] == ("×1.00", "≥ ×0.70", "×0.75", True)
    assert said["checkpoint, 20 MiB, 1,024 KiB changed, 8 checkpoints: pause"] == ("", "≤ 2 ms", "1.5 ms", True)
    assert said["checkpoint, 20 MiB, 1,024 KiB changed, 8 checkpoints: durable"] == ("", "≤ 20 ms", "30 ms", False)
    page = rows.page(document())
    assert "13 of 21 are reached." in page and page.index("## Not reached") < page.index("## Reached")
    assert "| full copy, 20 MiB | ext4 | 7 ms | 20 MiB |" in page and "medians of 3 alternating rounds" in page
    assert missed.why("Bonnie++ default: rewrite", "ext4") in page


def test_a_reason_is_given_once() -> None:
    """A text that no row leads to, or that an earlier one hides, would be read by nobody."""
    patterns = [(pattern, where) for pattern, where, _ in missed.WHY]
    assert len(set(patterns)) == len(patterns)
    assert missed.why("no such row", "ext4") == missed.OTHER


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, ran = tmp_path / "all.json", []

    def step(name: str, where: str, words: list[str], args: argparse.Namespace) -> dict:
        ran.append(name)
        if name == "kept" and ran.count("kept") == 1:
            raise KeyboardInterrupt
        return {"bench": "exec", "results": {}, "machine": machine.description(tmp_path),
                "options": {"rounds": str(args.rounds)}}

    monkeypatch.setattr(run, "one_step", step)
    monkeypatch.setattr(run, "show_file", lambda out: None)
    monkeypatch.setattr(run.plan, "steps", lambda *_: [("exec", "ext4", []), ("kept", "ext4", []), ("fio", "xfs", [])])

    def go(*words: str) -> int:
        return run.run_all(run.parser().parse_args(["all", "--form", "quick", "--out", str(out), *words]), out)

    with pytest.raises(KeyboardInterrupt):
        go()
    assert go("--resume") == 0 and ran == ["exec", "kept", "kept", "fio"]
    assert [each["step"] for each in json.loads(out.read_text())["benches"]] == ["exec ext4", "kept ext4", "fio xfs"]
    go("--resume", "--rounds", "1")
    assert ran[4:] == ["exec", "kept", "fio"], "another number of rounds is another measurement"
