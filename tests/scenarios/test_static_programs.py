"""Programs that the preload library is not in: what they do with files is tracked by their system calls."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import built_once
import pytest
from conftest import Compile
from lab import Lab, Tree, gone, wait_until

MODES = {"default": [], "isolate": ["--isolate"], "single": ["--mode", "single"]}
OPTIONS = pytest.mark.parametrize("options", MODES.values(), ids=MODES)
GROUPS = ",".join(map(str, range(70000, 70064)))       # what /proc says of a process is long
AS_NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--groups", GROUPS, "--"]
BUSYBOX = shutil.which("busybox") or ""
FLAGS = {
    "static": ["gcc", "-static"], "static-pie": ["gcc", "-static-pie"], "asan": ["gcc", "-fsanitize=address"],
    "raw": ["gcc", "-static", "-DRAW"], "musl": ["musl-gcc"], "musl-static": ["musl-gcc", "-static"]}

COMPILED = """
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(RAW) && defined(__x86_64__)
static long call(long number, long a, long b, long c, long d)
{
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return number;
}
#define open(path, flags) (int)call(SYS_openat, AT_FDCWD, (long)path, flags, 0)
#define pwrite(fd, bytes, count, at) call(SYS_pwrite64, fd, (long)bytes, count, at)
#define rename(old, new) (int)call(SYS_rename, (long)old, (long)new, 0, 0)
#endif
int main(void)
{
    FILE *f = fopen("log", "a");
    fprintf(f, "compiled\\n");
    int fd = open("old", O_RDWR);
    return fclose(f) || pwrite(fd, "S", 1, 4500) != 1 || rename("old", "older") || close(fd);
}
"""

GO = """
package main

import (
	"fmt"
	"os"
	"sync"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	folder := os.Args[1]
	must(os.MkdirAll(folder+"/deep/er", 0755))
	var all sync.WaitGroup
	for i := 0; i < 8; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			name := fmt.Sprintf("%s/%d", folder, i)
			must(os.WriteFile(name+".tmp", []byte(name), 0640))
			must(os.Rename(name+".tmp", name))
			must(os.Chmod(name, 0600))
		}(i)
	}
	all.Wait()
	log, err := os.OpenFile("log", os.O_APPEND|os.O_WRONLY, 0)
	must(err)
	fmt.Fprintln(log, folder)
	must(log.Close())
	old, err := os.OpenFile("old", os.O_RDWR, 0)
	must(err)
	_, err = old.WriteAt([]byte(folder), 4090)
	must(err)
	must(os.Truncate("old", 5900))
	must(os.Symlink("0", folder+"/soft"))
	must(os.Remove(folder + "/7"))
	must(os.RemoveAll(folder + "/deep"))
}
"""
GO_SETTING = ["CGO_ENABLED=0", "GOTOOLCHAIN=local", "GO111MODULE=off"]

STEPS = [
    "echo new > new; echo more >> log; mkdir -p a/b; echo deep > a/b/deep; ln -s new soft; ln new hard",
    "printf XX | dd of=old bs=1 seek=5000 conv=notrunc 2>/dev/null; chmod 600 log; touch -d @1000000000 hard; cat log",
    "sed -i s/oo/uu/ old; mv a c; rm soft; tar cf t.tar c; rm -r c; tar xf t.tar; rm t.tar; head -c 40 old",
    "cp old u; mv u old; : > log; truncate -s 7000 new; rm -f hard; mkdir -m 711 d; ls",
]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("static")
    (folder / "program.c").write_text(COMPILED)

    def build(kind: str) -> Path:
        compiler, *flags = FLAGS[kind]
        try:
            built_once.build([compiler, *flags, folder / "program.c"], folder / kind)
        except (FileNotFoundError, subprocess.CalledProcessError):
            pytest.skip(f"no {compiler}, or no library to link with")
        return folder / kind

    return build


@pytest.fixture(scope="session")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("go"):
        pytest.skip("no Go compiler")
    folder = tmp_path_factory.mktemp("go")
    (folder / "p.go").write_text(GO)
    subprocess.run(["env", *GO_SETTING, f"GOCACHE={folder}/cache", "go", "build", "p.go"], cwd=folder, check=True)
    return folder / "p"


def prepare(lab: Lab) -> None:
    (lab.work / "old").write_bytes(b"o" * 6000)
    (lab.work / "log").write_text("first\n")


def states_natively(lab: Lab, shell: list[str], steps: list[str]) -> tuple[list[Tree], bytes]:
    """The folder before the first step and after each; all that was printed."""
    prepare(lab)
    states, printed = [lab.state()], b""
    for step in steps:
        done = lab.run([*shell, "-c", step], native=True)
        assert (done.returncode, done.stderr) == (0, b""), (step, done)
        printed += done.stdout
        states.append(lab.state())
    return states, printed


def every_index(lab: Lab, native_lab: Lab, shell: list[str], steps: list[str], options: list[str]) -> None:
    """The steps in one run, with a checkpoint after each: the same output and files as natively, at each index."""
    states, printed = states_natively(native_lab, shell, steps)
    prepare(lab)
    checkpoint = " ".join(lab.argv("checkpoint"))
    script = "; ".join(f"{step}; {checkpoint} > /dev/null" for step in steps)
    done = lab.run([*shell, "-c", script], *options)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", printed)
    lab.assert_state(states[-1], "after the run")
    lab.verb("verify")
    indexes = range(len(steps) + 1) if "single" not in options else []
    for index in [*reversed(indexes), *indexes[1:]]:
        lab.restore(index)
        lab.assert_state(states[index], f"checkpoint {index}")
    lab.verb("verify")


def is_static(path: str) -> bool:
    return bool(path) and b"ld-linux" not in Path(path).read_bytes()[:4096]


@OPTIONS
def test_a_static_shell(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """busybox: the shell and all its tools are one static program."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    every_index(lab, native_lab, [BUSYBOX, "sh"], STEPS, options)


@OPTIONS
def test_programs_that_the_run_made(
    lab: Lab, native_lab: Lab, programs: Callable[[str], Path], options: list[str]
) -> None:
    """What kind a program is, and what runs a script, is read of bytes that may still be in the store's buffer."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    steps = [
        f"cp {programs('static')} made; ./made; cat log",
        f"cp {BUSYBOX} busybox; printf '#!./busybox sh\necho script >> log\n' > s; chmod +x s; env ./s; cat log",
        f"cp {BUSYBOX} run/busybox; printf '#!./run/busybox sh\necho more >> log\n' > run/s; "
        "printf '#!run/s\n' > by; chmod +x run/s by; env ./by; cat log",
    ]
    for each in (lab, native_lab):
        (each.work / "run").mkdir()
    every_index(lab, native_lab, ["sh"], steps, options)


@OPTIONS
def test_where_a_static_program_is(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """Relative names lead where it is at each call: in a folder that moves, in one that was removed."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    steps = [
        "(mkdir a; cd a; echo one > f; mv ../a ../b; echo two >> f; mv f ../b/g; ln g h; chmod 600 h)",
        "(mkdir c; cd c; rmdir ../c; echo up > ../d; echo in 2> /dev/null > e || echo refused; mv ../d ../log; ls ..)",
        "(mkdir -p i/j; cd i/j; (cd ..; echo above > k; mv k j/k); echo below >> k; mv k ../../old; cd ..; rmdir j)",
    ]
    every_index(lab, native_lab, [BUSYBOX, "sh"], steps, options)


@OPTIONS
def test_what_its_umask_is(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """At each call: before and after it changes, in a child that changes its own, after that."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    steps = [
        "old=$(umask); : > a; umask 077; : > b; mkdir c; umask 0; : > d; umask $old",
        ": > e; (: > f; umask 027; : > g; mkdir h; mkfifo i); : > j; mkdir k",
        "old=$(umask); (umask 077); : > l; umask 002; mkdir m; (: > n; umask 0; : > o); : > p; umask $old; : > q",
    ]
    every_index(lab, native_lab, [BUSYBOX, "sh"], steps, options)


def test_where_it_was_can_be_unmounted(lab: Lab) -> None:
    """The process that makes its calls is nowhere between them."""
    (lab.work / "mount").mkdir()
    mount = ["mount", "-t", "tmpfs", "none", lab.work / "mount"]
    if not is_static(BUSYBOX) or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no static busybox, or no right to mount")
    try:
        script = "for i in 1 2 3 4 5; do cd mount && echo > f$i && mkdir d$i && cd .. || exit 1; done; umount mount"
        done = lab.run([BUSYBOX, "sh", "-c", script])
        assert (done.returncode, done.stderr) == (0, b"")
    finally:
        subprocess.run(["umount", "-l", lab.work / "mount"], capture_output=True, check=False)


@OPTIONS
def test_a_dynamic_shell_that_starts_static_programs(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """Each by itself, between dynamic ones that change the same files."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    steps = [
        f"echo new > new; {BUSYBOX} cp new new2; dd if=new of=old bs=1 seek=3 conv=notrunc 2>/dev/null",
        f"{BUSYBOX} dd if=new of=old bs=1 seek=4000 conv=notrunc 2>/dev/null; head -c 10 old; {BUSYBOX} mv new2 log",
        f"echo last >> log; {BUSYBOX} sh -c 'rm new; env -i /bin/sh -c \"echo dynamic > d\"; cat log'; cat d; rm old",
    ]
    every_index(lab, native_lab, ["sh"], steps, options)


def test_refused_filters_are_said_once(lab: Lab, compiled: Compile) -> None:
    """Where no filter may be set a program runs as before, and one line says that it is not tracked."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    refused, script = compiled("refused"), f"{BUSYBOX} true; {BUSYBOX} echo it runs; {BUSYBOX} touch there"
    done = lab.run([refused, "sh", "-c", script])
    said = [line for line in done.stderr.decode().splitlines() if line.startswith("metamori:")]
    assert (done.returncode, done.stdout, len(said)) == (0, b"it runs\n", 1)
    assert (lab.work / "there").exists()


def proxies(lab: Lab) -> list[int]:
    """The process that makes the calls and the one that would take its place, in this order."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            own = os.fsencode(lab.store) in Path(f"/proc/{pid}/environ").read_bytes()
            if command.startswith(b"metamori-proxy") and own:
                found.append((len(os.listdir(f"/proc/{pid}/task")), pid))
        except OSError:
            continue
    return [pid for _, pid in sorted(found, reverse=True)]


def killed_proxies(lab: Lab) -> list[int]:
    """Those that there still were: a standby whose proxy was killed had become it, and started another."""
    found = proxies(lab)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


WORKS = "i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i > f$i; mv f$i g || exit 1; done; echo $i > count"


def test_the_proxy_is_killed(lab: Lab) -> None:
    """Its standby takes its place, again and again: no call fails, and nothing is lost."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    (lab.work / "old").write_bytes(b"o" * 6000)
    with subprocess.Popen([*lab.argv("run"), "--", BUSYBOX, "sh", "-c", WORKS], cwd=lab.work, env=lab.env,
                          stderr=subprocess.PIPE) as run:
        wait_until(lambda: len(proxies(lab)) == 2 and (lab.work / "g").exists(), "a proxy and its standby")
        for which in (0, 0, 1, 0):
            pids = proxies(lab)
            os.kill(pids[which], signal.SIGKILL)
            wait_until(lambda pids=pids, which=which: gone(pids[which]) and len(proxies(lab)) == 2, "the standby")
            before = (lab.work / "g").stat().st_ino
            wait_until(lambda before=before: (lab.work / "g").stat().st_ino != before, "the program to go on")
        (lab.work / "stop").touch()
        assert run.wait(60) == 0
        assert run.stderr and run.stderr.read() == b""
    (lab.work / "stop").unlink()
    assert sorted(lab.state()) == ["count", "g", "old"]
    after = lab.state()
    lab.restore(0)
    assert sorted(lab.state()) == ["old"]
    lab.restore(1)
    lab.assert_state(after, "the end")
    wait_until(lambda: not proxies(lab), "the proxy to end")


def keeps_listeners(pid: int) -> bool:
    """Whether the process has a seccomp listener open; descriptors that it closes meanwhile do not count."""
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            if "seccomp" in str(each.readlink()):
                return True
    return False


def test_the_proxy_and_its_standby_are_killed(lab: Lab) -> None:
    """`metamori run` has their descriptors, and starts others with them: the program waits and goes on."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    with subprocess.Popen([*lab.argv("run"), "--", BUSYBOX, "sh", "-c", WORKS], cwd=lab.work, env=lab.env,
                          stderr=subprocess.PIPE) as run:
        wait_until((lab.work / "g").exists, "the program to work")
        for _ in range(3):
            wait_until(lambda: len(proxies(lab)) == 2, "a proxy and its standby")
            wait_until(lambda: keeps_listeners(run.pid), "the third holder")
            pids = proxies(lab)
            for pid in reversed(pids):
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda pids=pids: all(map(gone, pids)) and len(proxies(lab)) == 2, "others")
            before = (lab.work / "g").stat().st_ino
            wait_until(lambda before=before: (lab.work / "g").stat().st_ino != before, "the program to go on")
        (lab.work / "stop").touch()
        assert run.wait(60) == 0
        assert run.stderr and run.stderr.read() == b""
    (lab.work / "stop").unlink()
    after = lab.state()
    assert sorted(after) == ["count", "g"]
    lab.restore(0)
    assert not lab.state()
    lab.restore(1)
    lab.assert_state(after, "the end")
    wait_until(lambda: not proxies(lab), "the proxy to end")


def test_all_is_killed(lab: Lab) -> None:
    """`metamori run`, the program and what makes its calls: the next verb completes the run."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    prepare(lab)
    before = lab.state()
    script = f"echo 1 >> old; {WORKS}"
    with subprocess.Popen([*lab.argv("run"), "--", BUSYBOX, "sh", "-c", script], cwd=lab.work, env=lab.env) as run:
        wait_until(lambda: (lab.work / "g").exists(), "the program to work")
        program = int(subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, check=True).stdout)
        lab.checkpoint()
        for pid in (run.pid, *proxies(lab), program):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(program) and not killed_proxies(lab), "the killed are still there")
    lab.restore(0)
    lab.assert_state(before, "checkpoint 0")
    lab.restore(1)
    assert (lab.work / "old").read_bytes() == b"o" * 6000 + b"1\n"
    lab.verb("verify")


@pytest.mark.parametrize(("kind", "options"), list(zip(FLAGS, 2 * list(MODES.values()), strict=True)), ids=FLAGS)
def test_a_compiled_program(
    lab: Lab, native_lab: Lab, programs: Callable[[str], Path], kind: str, options: list[str]
) -> None:
    program = programs(kind)
    steps = [f"{program}; cat log", f"mv older old; echo between >> old; {program}"]
    every_index(lab, native_lab, ["sh"], steps, options)


def test_started_by_its_loader(lab: Lab, native_lab: Lab, programs: Callable[[str], Path]) -> None:
    """musl's has no loader of its own, and preloads all the same."""
    musl = programs("musl")
    program = f"{glob.glob('/lib/ld-musl-*')[0]} {musl}"
    steps = [f"{program}; cat log", f"mv older old; echo between >> old; {program}"]
    every_index(lab, native_lab, ["sh"], steps, [])


@OPTIONS
def test_all_kinds_in_one_script(
    lab: Lab, native_lab: Lab, programs: Callable[[str], Path], options: list[str]
) -> None:
    """Dynamic ones and others change the same files in turn."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    c = [programs(kind) for kind in ("static", "asan", "raw")]
    steps = [
        f"{c[0]}; mv older old; echo shell >> log; {c[1]}; cp older old; {BUSYBOX} sed -i s/shell/box/ log; cat log",
        f"{c[2]}; rm older; printf x | dd of=log bs=1 seek=3 conv=notrunc 2>/dev/null"
        f"; {BUSYBOX} sh -c 'mv log l; ln l m'",
        f"{BUSYBOX} sh -c '{c[0]} || echo no; cat m; sh -c \"echo dynamic > l; rm m\"'; {BUSYBOX} cp l t; cat l; rm l",
    ]
    (native_lab.work / "old2").write_bytes(b"")
    (lab.work / "old2").write_bytes(b"")
    every_index(lab, native_lab, ["sh"], steps, options)


@OPTIONS
@pytest.mark.parametrize("kind", ["asan", "musl"])
def test_started_by_a_static_program(
    lab: Lab, native_lab: Lab, programs: Callable[[str], Path], kind: str, options: list[str]
) -> None:
    """Its environment names our library for dynamic ones: the loaders of these failed with it."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    steps = [f"{programs(kind)}; mv older old; echo between >> old; cat log",
             f"{BUSYBOX} find old -exec {programs(kind)} ';'; sh -c 'echo dynamic >> log'; mv older old; cat log"]
    every_index(lab, native_lab, [BUSYBOX, "sh"], steps, options)


@OPTIONS
def test_a_go_program(lab: Lab, native_lab: Lab, options: list[str], go_program: Path) -> None:
    """Its threads call the kernel by themselves."""
    every_index(lab, native_lab, ["sh"], [f"{go_program} one", f"cat one/0; {go_program} two", "rm -r one"], options)


@pytest.mark.slow
def test_go_build(lab: Lab, native_lab: Lab) -> None:
    """The tool is dynamic; the compiler and the linker that it starts are static."""
    if not shutil.which("go"):
        pytest.skip("no Go compiler")
    for each in (lab, native_lab):
        (each.work / "p.go").write_text(GO)
    build = ["go", "build", "-trimpath", "-ldflags=-buildid=", "p.go"]   # else it has the folder in it
    done = [each.run(["env", *GO_SETTING, f"GOCACHE={each.folder}/cache", *build], native=each is native_lab)
            for each in (native_lab, lab)]
    assert [(each.returncode, each.stdout) for each in done] == [(0, b"")] * 2, done
    built = lab.state()
    lab.assert_state(native_lab.state(), "what was built")
    lab.restore(0)
    assert sorted(lab.state()) == ["p.go"]
    lab.restore(1)
    lab.assert_state(built, "checkpoint 1")


@pytest.fixture
def open_folder(installed: None) -> Iterator[Path]:
    """Where everybody may go: pytest's own folders are private."""
    if os.geteuid() != 0:
        pytest.skip("it becomes another user")
    with tempfile.TemporaryDirectory(prefix="open-") as name:
        os.chmod(name, 0o777)
        yield Path(name)


def test_set_user_id_programs_below(open_folder: Path) -> None:
    """The filter takes their rights: said once, with the way out. What they do is tracked."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    lab = Lab(open_folder, Path(BUSYBOX))
    if lab.run([*AS_NOBODY, *lab.argv("log")], native=True).returncode != 10:
        pytest.skip("another user cannot read this folder")
    rights = lab.folder / "rights"
    shutil.copy("/usr/bin/touch", rights)
    rights.chmod(0o4755)
    lab.work.chmod(0o777)
    script = f"{rights} a; {rights} b; sh -c '{rights} c'"
    command = [*AS_NOBODY, *lab.argv("run"), "--", BUSYBOX, "sh", "-c", script]
    done = subprocess.run(command, cwd=lab.work, env=lab.env, capture_output=True, check=False)
    said = done.stderr.decode().splitlines()
    assert (done.returncode, len(said)) == (0, 1), said
    assert "rights gets no rights of another user" in said[0] and "METAMORI_STATIC=untracked" in said[0]
    assert [(lab.work / name).stat().st_uid for name in "abc"] == [65534] * 3
    assert lab.run([*AS_NOBODY, *lab.argv("restore", 0)], native=True).returncode == 0
    assert not lab.state()
    done = subprocess.run(command, cwd=lab.work, env=lab.env | {"METAMORI_STATIC": "untracked"}, capture_output=True,
                          check=False)
    assert done.returncode == 0 and (lab.work / "a").stat().st_uid == 0


def test_a_static_daemon_outlives_the_command(lab: Lab) -> None:
    """What it writes after the command's end is tracked, and its own end commits it."""
    if not is_static(BUSYBOX):
        pytest.skip("no static busybox")
    prepare(lab)
    before = lab.state()
    daemon = "while [ ! -e go ]; do sleep 0.1; done; rm old; echo late > late"
    done = lab.run(["sh", "-c", f"{BUSYBOX} setsid {BUSYBOX} sh -c '{daemon}' > /dev/null 2>&1 < /dev/null &"])
    assert (done.returncode, done.stderr) == (0, b"")
    (lab.work / "go").touch()
    wait_until(lambda: (lab.work / "late").exists(), "the daemon")
    wait_until(lambda: lab.verb("restore", 0, code=None).returncode == 0, "the end of the run")
    (lab.work / "go").unlink()
    lab.assert_state(before, "checkpoint 0")
