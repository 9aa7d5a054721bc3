"""CRIU and DMTCP with the hooks of examples/engines: right about files, at every image, backward and forward.

CRIU itself runs where it is installed and `criu check` is content; DMTCP where dmtcp_launch is. Without DMTCP the
plugin is compiled against the documented interface, and programs/dmtcp/host.c plays DMTCP's part.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lab import PATIENCE, difference, picture, wait_until

pytestmark = pytest.mark.usefixtures("installed")
ROOT = Path(__file__).resolve().parents[2]
ENGINES, HOST = ROOT / "examples" / "engines", Path(__file__).parent / "programs" / "dmtcp"
SETUP = {"table": b"oldvalue" * 7, **{f"part{i}": b"x" * (i + 1) for i in range(60)}}
# appends (RARE), reads and overwrites (RARW), reads and unlinks (RAD); its end is a function of nothing but itself
PROGRAM = """
import hashlib, os, sys, time
state, log = b"1", open("log", "a")
for i in range(60):
    with open("table", "r+b") as table:
        table.seek(i % 7 * 8)
        state = hashlib.sha256(state + table.read(8)).hexdigest().encode()
        table.seek(i % 7 * 8)
        table.write(state[:8])
    with open(f"part{i}", "rb") as part:
        state += part.read()
    os.unlink(f"part{i}")
    print(i, state[:16], file=log, flush=True)
    while i == 20 and not os.path.exists(f"{sys.argv[1]}/1") or i == 40 and not os.path.exists(f"{sys.argv[1]}/2"):
        time.sleep(0.01)
os.rename("log", "end")
"""


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("METAMORI")}
    return {**kept, "METAMORI_FILES": str(folder / "work"), "METAMORI_STORE": str(folder / "store"),
            "METAMORI_HOOK": str(ENGINES / "files"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT)}


def place(folder: Path) -> Path:
    folder.mkdir()
    for name, content in SETUP.items():
        (folder / name).write_bytes(content)
    return folder


def needs(command: str) -> None:
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")


def whole(folder: Path) -> None:
    done = subprocess.run(["metamori", "verify", "--store", folder / "store"], env=environment(folder),
                          capture_output=True, check=False)
    assert done.returncode == 0, done


def test_criu(tmp_path: Path) -> None:
    needs("rsync")
    needs("criu")
    if os.geteuid():
        pytest.skip("criu wants root")
    able = subprocess.run(["criu", "check"], capture_output=True, text=True, check=False)
    if able.returncode:
        pytest.skip(f"this criu cannot work on this kernel: {able.stderr.strip().splitlines()[-1]}")
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    ticks = tmp_path / "ticks"
    ticks.mkdir()
    native = place(tmp_path / "native")
    for tick in "12":
        (ticks / tick).touch()
    subprocess.run([sys.executable, script, ticks], cwd=native, check=True)
    for tick in "12":
        (ticks / tick).unlink()

    work = place(tmp_path / "work")

    def criu(verb: str, image: int, *words: str) -> None:
        images = tmp_path / f"image{image}"
        images.mkdir(exist_ok=True)
        # a namespace of its own: by now another process may have the program's number
        before = ["unshare", "--pid", "--fork", "--mount-proc"] if verb == "restore" else []
        done = subprocess.run(
            [*before, "criu", verb, "-D", images, "-o", f"{verb}.log", *words, "--action-script",
             ENGINES / "criu-action"],
            env=environment(tmp_path), cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, (done.stdout, (images / f"{verb}.log").read_text()[-2000:])

    program = subprocess.Popen([sys.executable, script, ticks], cwd=work, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        for image, lines in ((1, 21), (2, 41)):
            wait_until(lambda lines=lines: (work / "log").exists()
                       and (work / "log").read_bytes().count(b"\n") == lines, f"{lines} lines")
            criu("dump", image, "-t", str(program.pid), "--leave-running")
            (ticks / str(image)).touch()
        assert program.wait(PATIENCE) == 0
    finally:
        program.kill()
        program.wait()
    for image in (1, 2, 1):
        criu("restore", image)             # until the program's end
        assert difference(picture(work), picture(native)) == "", image
    whole(tmp_path)


def built(folder: Path, *include: str) -> Path:
    plugin = folder / "metamori_dmtcp.so"
    subprocess.run(["gcc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", *include, ENGINES / "metamori_dmtcp.c", "-o",
                    plugin], check=True)
    return plugin


def test_the_dmtcp_plugin_with_dmtcp_played(tmp_path: Path) -> None:
    needs("rsync")
    plugin, host = built(tmp_path, f"-I{HOST}"), tmp_path / "host"
    subprocess.run(["gcc", "-Wall", "-O1", f"-I{HOST}", "-rdynamic", HOST / "host.c", plugin, "-o", host], check=True)
    native, work, control = place(tmp_path / "native"), place(tmp_path / "work"), tmp_path / "control"
    control.mkdir()
    subprocess.run([host], cwd=native, check=True)
    played = subprocess.run([host, control], cwd=work, env=environment(tmp_path), stdin=subprocess.DEVNULL,
                            stderr=(tmp_path / "err").open("wb"), check=False)
    try:
        assert played.returncode == 0, (tmp_path / "err").read_text()
        assert difference(picture(work), picture(native)) == ""
        for image in (1, 2):
            (control / f"go.{image}").touch()
            wait_until((control / f"done.{image}").exists, f"image {image}: {(tmp_path / 'err').read_text()}")
            assert difference(picture(work), picture(native)) == "", image
    finally:
        for image in (1, 2):
            (control / f"go.{image}").touch()
    whole(tmp_path)


def test_dmtcp(tmp_path: Path) -> None:
    """Never run by its authors: no DMTCP was at hand. The commands are those of its manual."""
    needs("rsync")
    needs("dmtcp_launch")
    header = Path(shutil.which("dmtcp_launch") or "").resolve().parents[1] / "include"
    plugin = built(tmp_path, f"-I{header}")
    script, ticks = tmp_path / "program.py", tmp_path / "ticks"
    script.write_text(PROGRAM)
    ticks.mkdir()
    native, work = place(tmp_path / "native"), place(tmp_path / "work")
    env = {**environment(tmp_path), "DMTCP_COORD_PORT": "0", "DMTCP_CHECKPOINT_DIR": str(tmp_path)}
    program = subprocess.Popen(["dmtcp_launch", "--new-coordinator", "--port-file", tmp_path / "port", "--with-plugin",
                                plugin, sys.executable, script, ticks], cwd=work, env=env)
    try:
        images = []
        for image, lines in ((1, 21), (2, 41)):
            wait_until(lambda lines=lines: (work / "log").exists()
                       and (work / "log").read_bytes().count(b"\n") == lines, f"{lines} lines")
            port = (tmp_path / "port").read_text().strip()
            subprocess.run(["dmtcp_command", "--port", port, "--bcheckpoint"], env=env, check=True)
            made = next(path for path in tmp_path.glob("*.dmtcp"))
            images.append(made.rename(tmp_path / f"image{image}"))
            (ticks / str(image)).touch()
        assert program.wait(PATIENCE) == 0
        subprocess.run([sys.executable, script, ticks], cwd=native, check=True)
        for made in (images[0], images[1], images[0]):
            subprocess.run(["dmtcp_restart", "--new-coordinator", made], cwd=work, env=env, check=True,
                           timeout=PATIENCE)
            assert difference(picture(work), picture(native)) == "", made
    finally:
        program.kill()
        program.wait()
    whole(tmp_path)
