"""What leads to a name is another thing between its look-up and the call: a link, or another folder.

The call then changes what no checkpoint would have known of. Played by stop points (tests/stops.py).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lab import Lab, Session, difference, picture, wait_until
from stops import Stops


@pytest.fixture
def stops(lab: Lab, tmp_path: Path) -> Stops:
    stops = Stops(tmp_path / "stops")
    lab.env |= stops.env
    return stops


def begun(driver: Session, stops: Stops, thread: int, call: str) -> None:
    """The call has come by, or waits for what another one holds."""
    stops.arm("lock.waits")
    driver.ask(f"begin {thread} {call}")
    reached = stops.folder / "lock.waits.reached"
    wait_until(lambda: reached.exists() or driver.ask(f"ready {thread}") == "1", f"{call} comes by, or waits")
    stops.go("lock.waits")


def played(lab: Lab, stops: Stops, call: str, meanwhile: list[str], point: str = "names.found") -> str:
    """What the call answered, which was held when it had found its name. Then all is as it was before the run."""
    before = picture(lab.work)
    driver = lab.start()
    driver.must(["thread 0"])
    stops.arm(point)
    driver.ask(f"begin 0 {call}")
    stops.wait(point)
    driver.must(meanwhile)
    stops.go(point)
    answer = driver.ask("await 0")
    assert driver.end() == 0
    assert difference(picture(lab.work), before)
    lab.restore(0)
    assert not difference(picture(lab.work), before)
    return answer


def test_a_file_becomes_a_link(lab: Lab, stops: Stops) -> None:
    """Which the call follows: what it led to kept its new attributes at every index."""
    for name in "ft":
        (lab.work / name).write_text(name)
    assert played(lab, stops, "chmod f 600", ["unlink f", "symlink t f"]) == "0"


@pytest.mark.parametrize("kind", ["pipe", "their pipe", "folder", "their file"])
def test_what_is_opened_becomes_a_file(lab: Lab, stops: Stops, kind: str) -> None:
    """O_CREAT and O_TRUNC reached the kernel where no file had been found: what was there by then was emptied."""
    (lab.work / "f").write_text("f")
    if kind == "folder":
        (lab.work / "p").mkdir()
    elif kind == "their file":
        (lab.work / "p").write_text("p")
    else:
        os.mkfifo(lab.work / "p")
    if kind.startswith("their"):
        if os.geteuid():
            pytest.skip("only root can make another's")
        os.chown(lab.work / "p", 65534, 65534)
    gone = "rmdir p" if kind == "folder" else "unlink p"
    fd = played(lab, stops, "open p rw,creat,trunc", [gone, "rename f p"], "open.looked")
    assert int(fd) >= 0


def test_a_link_leads_to_another_one(lab: Lab, stops: Stops) -> None:
    for name in "ft":
        (lab.work / name).write_text(name)
    (lab.work / "l").symlink_to("f")
    assert played(lab, stops, "chmod l 600", ["unlink f", "symlink t f"]) == "0"


@pytest.mark.parametrize("call", ["unlink d/f", "rename d/f d/g", "open d/g w,creat", "mkdir d/g"])
def test_a_folder_becomes_a_link(lab: Lab, stops: Stops, call: str) -> None:
    """What was taken away there came back by the folder's name, which had never had it."""
    (lab.work / "d").mkdir()
    (lab.work / "e").mkdir()
    (lab.work / "e" / "f").write_text("f")
    assert not played(lab, stops, call, ["rmdir d", "symlink e d"]).startswith("-1")


@pytest.mark.parametrize("call", ["unlink f", "rename f g", "chmod f 600", "open g w,creat"])
def test_another_thread_moves_to_another_folder(lab: Lab, stops: Stops, call: str) -> None:
    """Where the call finds another file by the same name: that one was in no checkpoint."""
    (lab.work / "d").mkdir()
    for folder in (lab.work, lab.work / "d"):
        (folder / "f").write_text(folder.name)
    assert not played(lab, stops, call, ["chdir d"]).startswith("-1")


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolated"])
def test_a_descriptor_gives_a_name_while_the_last_one_goes(lab: Lab, stops: Stops, options: list[str]) -> None:
    """Whoever takes a name has found that it is the only one: nobody gives the file another until it is gone."""
    driver = lab.start(*options)
    driver.must(["thread 0", "thread 1", "fill f w,creat 5000 1"])
    fd = driver.ask("open f rw").split()[0]
    stops.arm("keep.looked")
    driver.ask("begin 1 unlink f")
    stops.wait("keep.looked")
    begun(driver, stops, 0, f"linkfd {fd} g")
    stops.go("keep.looked")
    assert driver.ask("await 1") == "0"
    named = driver.ask("await 0")
    driver.must([f"close {fd}"])
    if named == "0":
        driver.must(["checkpoint"])
        other = driver.ask("open g r").split()[0]
        assert driver.ask(f"pread {other} 5000 0").startswith("5000 ")
    assert driver.end() == 0
    assert (lab.work / "g").exists() == (named == "0")
    if named == "0":
        assert (lab.work / "g").stat().st_size == 5000


def test_somebody_replaces_a_file_that_is_about_to_be_kept(lab: Lab, stops: Stops) -> None:
    """Once the store counted as removed by that, and nothing was tracked any more."""
    (lab.work / "f").write_text("old")
    driver = lab.start()
    driver.must(["thread 0"])
    stops.arm("keep.looked")
    stops.arm("keep.linked")
    driver.ask("begin 0 unlink f")
    stops.wait("keep.looked")
    (lab.work / "f").unlink()
    stops.go("keep.looked")
    stops.wait("keep.linked")
    (lab.work / "f").write_text("theirs")
    stops.go("keep.linked")
    driver.must(["await 0", "fill new w,creat 5000 1", "checkpoint"])
    assert driver.end() == 0
    (lab.work / "new").unlink()
    lab.restore(max(lab.messages()), "--force")
    assert (lab.work / "new").stat().st_size == 5000


def beside(lab: Lab, stops: Stops, point: str, call: str, others: list[str]) -> list[str]:
    """What calls answered: the first is held at a point, while others come one by one, until one has to wait."""
    driver = lab.start()
    driver.must([f"thread {i}" for i in range(len(others) + 1)])
    stops.arm(point)
    driver.ask(f"begin 0 {call}")
    stops.wait(point)
    answers = []
    for i, other in enumerate(others):
        begun(driver, stops, i + 1, other)
        if driver.ask(f"ready {i + 1}") == "0":
            stops.go(point)
        answers.append(driver.ask(f"await {i + 1}"))
    stops.go(point)
    answers.insert(0, driver.ask("await 0"))
    assert driver.end() == 0
    return answers


@pytest.mark.parametrize("others", [["rename ../out/new ../out/way"], ["exchange ../out/two ../out/one"],
                                    ["unlink ../out/way", "symlink ../work/t ../out/way"],
                                    ["rename ../out/folder/new ../out/way"]])
@pytest.mark.parametrize(("call", "point"), [("unlink {}/f", "unlink.kept"), ("rename {}/f {}/g", "rename.kept"),
                                             ("mkdir {}/h", "noted.begun")])
def test_a_link_out_of_the_scope_leads_elsewhere(lab: Lab, stops: Stops, call: str, point: str,
                                                 others: list[str]) -> None:
    """By a folder or a link that nobody tracks: what the call changed in the other folder was in no index."""
    lab.env.pop("METAMORI_TRACK", None)
    out = lab.folder / "out"
    for folder in (out / "folder", out / "one", out / "two", lab.work / "s", lab.work / "t"):
        folder.mkdir(parents=True)
    for folder in ("s", "t"):
        (lab.work / folder / "f").write_text(folder * 5000)
    for path, target in (("way", "s"), ("new", "t"), ("folder/new", "t"), ("one/way", "s"), ("two/way", "t")):
        (out / path).symlink_to(lab.work / target)
    before = picture(lab.work)
    way = "../out/one/way" if "exchange" in others[0] else "../out/way"
    answers = beside(lab, stops, point, call.format(way, way), others)
    assert not [answer for answer in answers if answer.startswith("-1")]
    lab.verb("verify")
    lab.restore(0)
    assert not difference(picture(lab.work), before)


@pytest.mark.parametrize("link", ["symlink ../work/t/x ../out/d", "link ../out/l ../out/d"])
def test_a_link_comes_while_a_folder_that_nobody_tracks_goes(lab: Lab, stops: Stops, link: str) -> None:
    """The removal counted when it ended, without a lock: what had been looked up before went on by the link."""
    lab.env.pop("METAMORI_TRACK", None)
    out, inner = lab.folder / "out", lab.work / "work"
    for folder in (out / "d", lab.work / "t" / "x", inner):
        folder.mkdir(parents=True)
    (out / "l").symlink_to(lab.work / "t" / "x")
    (lab.work / "f").write_text("outer" * 5000)
    (inner / "f").write_text("inner" * 5000)
    before = picture(lab.work)
    driver = lab.start()
    driver.must(["thread 0", "thread 1"])
    calls = {"names.found": "unlink ../out/d/../../work/f", "rmdir.made": "rmdir ../out/d"}
    for i, (point, call) in enumerate(calls.items()):
        stops.arm(point)
        driver.ask(f"begin {i} {call}")
        stops.wait(point)
    driver.must([link])
    stops.go("names.found")
    assert driver.ask("await 0") == "0"
    stops.go("rmdir.made")
    assert driver.ask("await 1") == "0"
    assert driver.end() == 0
    assert (lab.work / "f").exists() and not (inner / "f").exists()
    lab.restore(0)
    assert not difference(picture(lab.work), before)


def test_a_link_gets_the_name_of_a_folder(lab: Lab, stops: Stops) -> None:
    """As a further name of a link: what was made there, which is elsewhere, was in no index."""
    for folder in ("d", "e"):
        (lab.work / folder).mkdir()
    (lab.work / "l").symlink_to("e")
    before = picture(lab.work)
    beside(lab, stops, "noted.begun", "mkdir d/g", ["rmdir d", "link l d"])
    lab.restore(0)
    assert not difference(picture(lab.work), before)
