"""metamori report and metamori status, as a person calls them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import xml.etree.ElementTree as xml

import pytest
from lab import Lab


def test_pictures_and_a_page(lab: Lab) -> None:
    lab.run(["sh", "-c", "echo one > f; echo two > g"])
    lab.run(["sh", "-c", "echo three >> f"])
    for name in ("timeline", "heatmap", "space"):
        target = lab.folder / f"{name}.svg"
        said = json.loads(lab.verb("report", name, "-o", target, "--json").stdout)
        assert said["checkpoints"] == 2 and said["file"] == str(target)
        xml.parse(target)
        assert lab.verb("report", name).stdout.strip() == target.read_text().strip()
    page = lab.folder / "all.html"
    lab.verb("report", page)
    assert page.read_text().count("<svg") == 3 and "f</title>" in page.read_text()
    one = lab.verb("report", "heatmap", "--file", "f", cwd=lab.work).stdout
    assert ">f<" in one.replace("work/f", "f") and "g</title>" not in one
    lab.verb("report", page, "--file", "f", cwd=lab.work)
    assert page.read_text().count("Where files changed</text>") == 1 and "1 of 2 files" in page.read_text()


def test_what_is_no_picture_is_said(lab: Lab) -> None:
    lab.run(["sh", "-c", "echo one > f"])
    assert "timeline" in lab.verb("report", "picture", code=2).stderr
    assert "nothing" in lab.verb("report", "heatmap", "--file", "nothing", code=1).stderr
    assert "FILE.html" in lab.verb("report", "x.html", "-o", "y", code=2).stderr
    for picture in ("timeline", "space"):
        said = lab.verb("report", picture, "--file", lab.work / "f", code=2).stderr
        assert said == f"metamori: --file says what the heatmap shows; {picture} is of all files\n"
    lab.verb("report", "timeline", code=10, store=lab.folder / "none")


def test_status_of_a_live_run_and_after_it(lab: Lab) -> None:
    session = lab.start("--every", "1h")
    program = session.program()
    live = json.loads(lab.verb("status", "--json").stdout)
    assert live["alive"] and live["processes"] == [program] and live["newest"] == 0
    assert 0 < live["next_checkpoint_in"] <= 3600 and live["last_checkpoint"] is None
    lab.checkpoint()
    text = lab.verb("status").stdout
    assert "checkpoint 1" in text and "the next in" in text and "driver" in text
    watch = subprocess.Popen(lab.argv("status", "--watch", "--interval", "20ms", "--json"), env=lab.env,
                             stdout=subprocess.PIPE, text=True)
    assert watch.stdout
    assert json.loads(watch.stdout.readline())["alive"]
    session.end()
    last = [json.loads(line) for line in watch.stdout][-1]
    assert watch.wait(60) == 0 and not last["alive"] and last["newest"] == 2
    assert lab.verb("status").stdout == "no run is alive; the files are at checkpoint 2, the newest\n"
    lab.restore(1)
    assert lab.verb("status").stdout == "no run is alive; the files are at checkpoint 1, the newest is 2\n"
    lab.verb("status", "--watch", code=15)


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_status_says_how_large_the_files_are(lab: Lab, options: list[str]) -> None:
    """Only sizes that are not in place were counted."""
    (lab.work / "old").write_bytes(bytes(50000))
    session = lab.start(*options)
    session.must(["open old rw", "pwrite 3 4000 100 1", "pwrite 3 6000 48000 1", "open new rw,creat", "write 4 7000 1",
                  "open gone rw,creat", "write 5 100 1", "unlink gone", "rename new named"])
    found = json.loads(lab.verb("status", "--json").stdout)
    nameless = 100 if options else 0
    assert (found["files"], found["bytes_in_files"]) == (3, 54000 + 7000 + nameless)
    assert session.end() == 0


def test_progress_is_for_terminals_only(lab: Lab) -> None:
    """A verb that takes long says how far it is; nothing of it is left when it is done."""
    lab.run(["sh", "-c", "echo one > f"])
    impatient = [lab.argv("verify")[0], "-c", "from metamori.cli import main, progress; progress.PATIENCE_S = 0; "
                 f"raise SystemExit(main.main(['verify', '--store', {str(lab.store)!r}]))"]
    plain = subprocess.run(impatient, env=lab.env, capture_output=True, text=True, check=True)
    assert plain.stderr == "" and "no errors" in plain.stdout
    ours, theirs = pty.openpty()
    shown = subprocess.run(impatient, env=lab.env, stdout=subprocess.PIPE, stderr=theirs, text=True, check=True)
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert b"steps" in said and said.endswith(b"\r\x1b[K") and shown.stdout == plain.stdout
