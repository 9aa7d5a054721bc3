"""Programs whose environment was cleared stay in the run; those that cannot be tracked are named once, see the files
as they are, and no index loses a byte by them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from conftest import Compile
from lab import PATIENCE, Lab, Session, wait_until

import metamori

OVERWRITE = "printf {} | dd of=old conv=notrunc bs=1 seek={} 2>/dev/null"
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user or the PID namespace")


@pytest.fixture
def outsider(compiled: Compile) -> Path:
    return compiled("outsider", "static")


@pytest.fixture(params=[True, False], ids=["shown", "refused"])
def refused(request: pytest.FixtureRequest, compiled: Compile) -> list[Path]:
    """What a command begins with where the kernel shows the calls of static programs, and where it may not."""
    return [] if request.param else [compiled("refused")]


def said(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return [line for line in done.stderr.decode().splitlines() if line.startswith("metamori:")]


@pytest.mark.parametrize("clear", ["env -i", "env -u METAMORI_STORE", "LD_PRELOAD= ", "LD_PRELOAD=libm.so.6"])
def test_cleared_environment_stays_in_the_run(lab: Lab, native_lab: Lab, clear: str) -> None:
    """What the program prints of its environment is what was given; what it overwrites can be restored."""
    script = f"A=1 {clear} sh -c '{OVERWRITE.format('NEW', 10)}; env | grep -v -e ^_= -e METAMORI -e PWD | sort'"
    if clear.startswith("env -u"):
        script = script.replace("sort", "grep -c LD_PRELOAD")
    for each in (lab, native_lab):
        (each.work / "old").write_bytes(b"o" * 6000)
    done = lab.run(["sh", "-c", script], env={"PWD": str(lab.work)})
    wanted = native_lab.run(["sh", "-c", script], native=True, env={"PWD": str(lab.work)})
    assert said(done) == []
    if not clear.startswith("env -u"):
        assert done.stdout == wanted.stdout
    assert (lab.work / "old").read_bytes()[10:13] == b"NEW"
    lab.restore(0)
    assert (lab.work / "old").read_bytes() == b"o" * 6000


LOCKED = """
import fcntl, os, sys
fd = os.open("old", os.O_RDWR)
os.pwrite(fd, b"changed", 5)
fcntl.lockf(fd, fcntl.LOCK_EX, 10)
os.set_inheritable(fd, True)
os.execv(sys.argv[1], [sys.argv[1], "asks", "old"])
"""


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode", "single"]], ids=["default", "isolate", "single"])
def test_a_static_program_has_the_locks_of_the_one_before_it(
    lab: Lab, native_lab: Lab, compiled: Compile, options: list[str]
) -> None:
    """An exec leaves them to the new program, though it is not tracked and the run had the file open too."""
    program = compiled("held", "static")
    for each in (lab, native_lab):
        (each.work / "old").write_bytes(b"o" * 6000)
    command = [sys.executable, "-c", LOCKED, program]
    wanted = native_lab.run(command, native=True)
    assert wanted.returncode == 1, "it is this process that holds the lock"
    assert lab.run(command, *options).returncode == 1


RECEIVER = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.bind(sys.argv[1])
    door.listen()
    print("listening", flush=True)
    line = door.accept()[0]
_, (fd,), _, _ = socket.recv_fds(line, 1, 1)
print(os.pread(fd, 30, 0), os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_CUR))
os.pwrite(fd, b"outside", 10)
line.sendall(b"1")
line.recv(1)
print(os.pread(fd, 30, 0), os.fstat(fd).st_size)
os.write(fd, b"at its place")
line.sendall(b"2")
"""
SENDER = """
import os, socket, sys
fd = os.open("old", os.O_RDWR)
os.pwrite(fd, b"inside", 0)
os.lseek(fd, 100, os.SEEK_SET)
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
socket.send_fds(line, [b"0"], [fd])
line.recv(1)
print(os.pread(fd, 30, 0))
os.pwrite(fd, b"again", 20)
os.pwrite(fd, b"longer", 7000)
line.sendall(b"2")
line.recv(1)
print(os.pread(fd, 20, 98), os.lseek(fd, 0, os.SEEK_CUR), os.fstat(fd).st_size)
"""


def hand_over(lab: Lab, options: list[str] | None) -> list[bytes]:
    """A run (natively: None) hands a descriptor to a process that was there before it; what both have said."""
    (lab.work / "old").write_bytes(b"o" * 6000)
    with tempfile.TemporaryDirectory() as folder:  # the name of a socket is short
        door = f"{folder}/door"
        with subprocess.Popen([sys.executable, "-c", RECEIVER, door], stdout=subprocess.PIPE) as receiver:
            assert receiver.stdout and receiver.stdout.readline() == b"listening\n"
            command = [sys.executable, "-c", SENDER, door]
            done = lab.run(command, native=True) if options is None else lab.run(command, *options)
            said = receiver.communicate(timeout=PATIENCE)[0]
    assert (done.returncode, done.stderr, receiver.returncode) == (0, b"", 0)
    return [done.stdout, said]


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode", "single"]], ids=["default", "isolate", "single"])
def test_a_descriptor_sent_to_a_process_outside(lab: Lab, native_lab: Lab, options: list[str]) -> None:
    """It sees what the run wrote before and writes after, the run sees what it writes; the old bytes come back."""
    assert hand_over(lab, options) == hand_over(native_lab, None)
    assert (lab.work / "old").read_bytes() == (native_lab.work / "old").read_bytes()
    if "single" not in options:
        lab.restore(0)
        assert (lab.work / "old").read_bytes() == b"o" * 6000


def test_the_way_out(lab: Lab) -> None:
    (lab.work / "old").write_bytes(b"o" * 6000)
    lab.run(["sh", "-c", "env -i METAMORI_DISABLE=1 sh -c 'echo not followed > new'"])
    assert not any("new" in str(line) for line in lab.verb("diff", 0, 1).stdout.splitlines())


@pytest.mark.parametrize("options", [[], ["--isolate"], ["--mode", "single"]], ids=["default", "isolate", "single"])
def test_static_children_see_the_files(
    lab: Lab, native_lab: Lab, outsider: Path, refused: list[Path], options: list[str]
) -> None:
    script = f"{OVERWRITE.format('AAA', 3)}; {outsider} old; metamori_checkpoint;"
    script += f" {OVERWRITE.format('BBB', 6)}; {outsider} old;"
    script += f" exec 3>>log; echo first >&3; {outsider} old inherited; echo last >&3; cat log"
    checkpoint = " ".join(lab.argv("checkpoint"))
    for each in (lab, native_lab):
        (each.work / "old").write_bytes(b"o" * 6000)
    done = lab.run([*refused, "sh", "-c", script.replace("metamori_checkpoint", f"{checkpoint} > /dev/null")], *options)
    wanted = native_lab.run(["sh", "-c", script.replace("metamori_checkpoint", ":")], native=True)
    assert done.stdout == wanted.stdout
    assert len(said(done)) == len(refused), "named once, unless it is tracked"
    assert not refused or "static" in said(done)[0]
    assert (lab.work / "log").read_bytes() == b"first\nby the outsider\nlast\n"
    if "single" not in options:
        lab.restore(1)
        assert (lab.work / "old").read_bytes()[:12] == b"oooAAAoooooo"
        lab.restore(0)
        assert (lab.work / "old").read_bytes() == b"o" * 6000
        lab.restore(2)
        assert (lab.work / "old").read_bytes()[:12] == b"oooAAABBBooo"
    lab.verb("verify")


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_a_static_daemon_sees_what_is_written_after_it(lab: Lab, outsider: Path, options: list[str]) -> None:
    """While it lives files stay in place, also those overwritten after a checkpoint."""
    (lab.work / "old").write_bytes(b"o" * 6000)
    program = lab.start(*options)
    program.must(["open old rw", "pwrite 3 5 0 1"])
    program.must([f"sh {outsider} old for-long > seen 2>/dev/null &"])
    seen = lab.work / "seen"

    def sees(text: bytes) -> bool:
        return seen.exists() and seen.read_bytes().endswith(text[:16] + b"\n")

    for number in range(1, 4):
        program.must([f"pwrite 3 16 0 {number}"])
        now = bytes.fromhex(program.ask("hex old 0 16").split()[1])
        if b"\n" in now or b"\0" in now:
            continue
        wait_until(lambda now=now: sees(now), f"the daemon to see write {number}")
        program.must(["checkpoint"])
    assert program.ask("restore @0") == "-1 EBUSY"
    (lab.work / "stop").touch()
    assert program.end() == 0
    lab.restore(0)
    assert (lab.work / "old").read_bytes() == b"o" * 6000
    lab.verb("verify")


@ROOT_ONLY
@pytest.mark.parametrize("becomes", ["os.setuid(65534)", "libc.setfsuid(65534)", "libc.syscall(117, -1, 65534, -1)"])
def test_a_process_that_becomes_another_user(lab: Lab, becomes: str) -> None:
    """It cannot write the store any more: said, and it goes on as natively. Or a thread does (117: setresuid)."""
    lab.folder.chmod(0o755)
    lab.work.chmod(0o777)
    (lab.work / "gone").touch()
    for parent in lab.work.parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            pytest.skip(f"another user cannot enter {parent}")
    (lab.work / "old").write_bytes(b"o" * 6000)
    code = f"""
        import ctypes, os
        libc = ctypes.CDLL(None)
        fd = os.open("old", os.O_RDWR)
        os.pwrite(fd, b"root", 5)
        {becomes}
        os.unlink("gone")
        os.pwrite(fd, b"user", 20)
        print(os.pread(fd, 30, 0))
        os.close(fd)
    """
    done = lab.run([sys.executable, "-c", textwrap.dedent(code)])
    assert done.stdout == b"b'oooooroot" + b"o" * 11 + b"user" + b"o" * 6 + b"'\n", done.stderr
    assert done.returncode == 0
    assert len(said(done)) == 1
    assert "becomes a user who cannot write the store: from now on its files are not checkpointed" in said(done)[0]
    lab.restore(0)
    assert (lab.work / "old").read_bytes()[:20] == b"o" * 20


OUTLIVES = """
import os, metamori
def turn(pipe): assert os.read(pipe[0], 1)
mine, its = os.pipe(), os.pipe()
fd = os.open("old", os.O_RDWR)
if not os.fork():
    os.setuid(65534)
    if not os.fork():
        os.write(mine[1], b".")
        turn(its)
        os.pwrite(fd, b"child", 4000)
        os.write(mine[1], b".")
        turn(its)
    os._exit(0)
os.wait()
turn(mine)
metamori.checkpoint()
os.close(fd)
metamori.checkpoint()
fd = os.open("old", os.O_RDWR)
os.pwrite(fd, b"first", 3990)
os.write(its[1], b".")
turn(mine)
print(os.pread(fd, 20, 3988))
metamori.checkpoint()
os.pwrite(fd, b"again", 3995)
print(os.pread(fd, 20, 3988))
os.write(its[1], b".")
"""


@ROOT_ONLY
@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_a_child_of_one_that_left_the_run_outlives_it(lab: Lab, options: list[str]) -> None:
    """It has the file open that the run has not any more: what it writes is seen, and is in the next index."""
    lab.folder.chmod(0o755)
    (lab.work / "old").write_bytes(b"o" * 6000)
    done = lab.run([sys.executable, "-c", OUTLIVES], *options)
    assert done.stdout == b"b'oofirstooooochildooo'\nb'oofirstagainchildooo'\n", done
    assert done.returncode == 0 and len(said(done)) == 1
    end = b"o" * 3990 + b"firstagainchild" + b"o" * 1995
    assert (lab.work / "old").read_bytes() == end
    for index, want in ((2, b"o" * 6000), (3, end.replace(b"again", b"ooooo")), (0, b"o" * 6000)):
        lab.restore(index)
        assert (lab.work / "old").read_bytes() == want, index
    lab.verb("verify")


@ROOT_ONLY
def test_process_numbers_of_its_own(lab: Lab) -> None:
    """A PID namespace: the numbers in the run area would mean other processes."""
    if subprocess.run(["unshare", "-pf", "true"], check=False).returncode:
        pytest.skip("no PID namespaces here")
    (lab.work / "old").write_bytes(b"o" * 6000)
    script = f"{OVERWRITE.format('AAA', 3)}; unshare -pf sh -c 'head -c 12 old; echo; echo inside > new'; cat new"
    done = lab.run(["sh", "-c", script])
    assert done.stdout == b"oooAAAoooooo\ninside\n"
    assert said(done)
    assert "PID namespace" in said(done)[0]
    lab.restore(0)
    assert (lab.work / "old").read_bytes() == b"o" * 6000


def test_another_machine(lab: Lab) -> None:
    """A job over several nodes, whose processes inherit the environment: the run area is another kernel's."""
    (lab.work / "old").write_bytes(b"o" * 6000)
    (lab.folder / "boot.py").write_text(
        f"from metamori.runtime.area.run_area import Area; area = Area({str(lab.store)!r}); area.head.boot ^= 1\n"
    )
    script = f"{sys.executable} {lab.folder}/boot.py; {OVERWRITE.format('AAA', 3)}; head -c 12 old"
    done = lab.run(["sh", "-c", script])
    assert done.stdout == b"oooAAAoooooo"
    assert said(done)
    assert all("another machine" in line for line in said(done))


def test_the_dynamic_loader_as_a_program(lab: Lab) -> None:
    """It preloads for the program that it is given: tracked, and nothing to say."""
    loader = Path("/lib64/ld-linux-x86-64.so.2")
    if not loader.exists():
        pytest.skip(f"no {loader} here")
    (lab.work / "old").write_bytes(b"o" * 6000)
    script = f"{loader} /bin/sh -c '{OVERWRITE.format('AAA', 3)}'; {loader} /bin/cat old | head -c 9"
    done = lab.run(["sh", "-c", script])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"oooAAAooo", b"")
    assert "can be tracked" in lab.verb("doctor", loader).stdout
    lab.restore(0)
    assert (lab.work / "old").read_bytes() == b"o" * 6000


def test_doctor_names_them(lab: Lab, outsider: Path) -> None:
    script, lost, broken = lab.work / "script", lab.work / "lost", lab.work / "broken"
    script.write_text(f"#!{outsider}\n")
    lost.write_text("#!/not/there\n")
    image = bytearray(Path(lab.driver).read_bytes())
    loader = image.index(b"/lib64/ld-linux")
    image[loader:loader + 6] = b"/lib65"
    broken.write_bytes(image)
    for path, why, code in (
        (outsider, "static", 0), (script, "static", 0), (lost, "not there", 1), (broken, "cannot be started", 1)
    ):
        done = lab.verb("doctor", path, code=code)
        assert why in done.stdout, done.stdout
    if os.geteuid() != 0:
        return
    rights = lab.work / "rights"
    rights.write_bytes(Path(lab.driver).read_bytes())
    os.chown(rights, 65534, 65534)
    rights.chmod(0o4755)
    if not os.statvfs(rights).f_flag & os.ST_NOSUID:
        assert "set-user-ID" in lab.verb("doctor", rights, code=1).stdout


def test_refused_while_a_child_is_only_just_there(lab: Lab) -> None:
    """Restores are all or nothing, also against processes that are being forked by another thread."""
    code = """
        import metamori, os, threading
        fd = os.open("file", os.O_RDWR | os.O_CREAT)
        os.write(fd, b"one")
        index = metamori.checkpoint()
        stop = False
        def forking():
            while not stop:
                pid = os.fork()
                if not pid:
                    os._exit(os.lseek(fd, 0, os.SEEK_CUR) not in (3, 6))
                bad.append(os.waitpid(pid, 0)[1])
        bad, answers = [], []
        thread = threading.Thread(target=forking)
        thread.start()
        for _ in range(40):
            os.lseek(fd, 3, os.SEEK_SET)
            os.write(fd, b"two")
            try:
                metamori.restore(index)
                answers.append(0)
                assert os.fstat(fd).st_size == 3 and os.lseek(fd, 0, os.SEEK_CUR) == 3
            except OSError as error:
                answers.append(error.errno)
                assert os.fstat(fd).st_size == 6
        stop = True
        thread.join()
        metamori.restore(index)
        print(sorted(set(answers) - {0, 16, 11}), sum(bad), os.fstat(fd).st_size)
    """
    done = lab.run([sys.executable, "-c", textwrap.dedent(code)])
    assert (done.stdout, done.returncode) == (b"[] 0 3\n", 0), done.stderr.decode()[-2000:]


def test_survivors_of_a_double_fork(lab: Lab) -> None:
    """The run's first process ends first; the daemon, in a session of its own, is still tracked and commits."""
    (lab.work / "old").write_bytes(b"o" * 6000)
    os.mkfifo(lab.folder / "gate")
    late = f"read x < {lab.folder}/gate; {OVERWRITE.format('LATE', 9)}; echo > flag"
    done = lab.run(["sh", "-c", f"(setsid sh -c '{late}' > /dev/null 2>&1 &) ; exit 4"])
    assert done.returncode == 4
    (lab.folder / "gate").write_text("\n")
    wait_until(lambda: (lab.work / "flag").exists(), "the daemon")
    wait_until(lambda: (lab.work / "old").read_bytes()[9:13] == b"LATE", "the daemon's bytes")
    wait_until(lambda: lab.verb("restore", 0, code=None).returncode == 0, "the end of the run")
    assert (lab.work / "old").read_bytes() == b"o" * 6000
    assert not (lab.work / "flag").exists()


GO = r"""
__asm__(".section .note.go.buildid,\"a\",@note\n.long 4, 4, 4\n.asciz \"Go\"\n.byte 0\n.long 7\n.text");
static long raw(long call, long a, long b, long c)
{
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(call), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
int main(int count, char **word)
{
    char text[12];
    long fd = raw(2, (long)"old", 2, 0);
    if (count > 1)
        return raw(1, fd, (long)word[1], 1) != 1;
    return raw(1, 1, (long)text, raw(0, fd, (long)text, 12)) != 12;
}
"""


@pytest.fixture
def go(lab: Lab) -> None:
    (lab.work / "go.c").write_text(GO)
    subprocess.run(["gcc", "-O1", "go.c", "-o", "go"], cwd=lab.work, check=True)
    (lab.work / "old").write_bytes(b"o" * 6000)


SPAWN = "import os; os.posix_spawn('./go', ['go'], {}); os.wait()"
STARTS = pytest.mark.parametrize("start", ["./go", f'{sys.executable} -c "{SPAWN}"'], ids=["exec", "spawn"])
ISOLATED = pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])


@STARTS
@ISOLATED
def test_programs_of_the_go_linker(lab: Lab, go: None, options: list[str], start: str) -> None:
    """The loader takes our library, but what it does passes below: the kernel shows it, and the library rests."""
    script = f"{OVERWRITE.format('AAA', 3)}; {start}; CHECK > /dev/null; ./go G; {start}; env -i ./go H"
    done = lab.run(["sh", "-c", script.replace("CHECK", " ".join(lab.argv("checkpoint")))], *options)
    assert (done.stdout, said(done)) == (b"oooAAAooooooGooAAAoooooo", [])
    for index, begins in ((1, b"oooAAA"), (0, b"oooooo"), (2, b"HooAAA"), (1, b"oooAAA")):
        lab.restore(index)
        assert (lab.work / "old").read_bytes() == begins + b"o" * 5994


@STARTS
@pytest.mark.parametrize(("options", "how"), [([], "untracked"), (["--isolate"], "untracked"), (["--memory"], "")],
                         ids=["default", "isolate", "memory"])
def test_where_the_kernel_does_not_show_them(lab: Lab, go: None, options: list[str], how: str, start: str) -> None:
    """It is said, and files are in place for them."""
    script = f"{OVERWRITE.format('AAA', 3)}; {start}; {start}"
    done = lab.run(["sh", "-c", script], *options, env={"METAMORI_STATIC": how})
    assert done.stdout == b"oooAAAoooooo" * 2
    assert len(said(done)) == 1
    assert "is a Go program" in said(done)[0]
    lab.restore(0)
    assert (lab.work / "old").read_bytes() == b"o" * 6000


SLOW_CHILDREN = """
#include <pthread.h>
#include <unistd.h>
static void slow(void) { usleep(300000); }
__attribute__((constructor)) static void before_all(void) { pthread_atfork(0, 0, slow); }
"""


@pytest.mark.parametrize("supervised", [True, False], ids=["run", "by-hand"])
def test_a_child_that_runs_late(lab: Lab, supervised: bool) -> None:
    """Its parents have ended before it ran its first instruction: the run goes on with it all the same."""
    source, slow = lab.folder / "slow.c", lab.folder / "slow.so"
    source.write_text(SLOW_CHILDREN)
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(slow)], check=True)
    (lab.work / "old").write_bytes(b"o" * 6000)
    (lab.work / "first").write_bytes(b"1")
    script = f"echo 2 > first; ({OVERWRITE.format('LATE', 9)}; echo > flag) > /dev/null 2>&1 &"
    if supervised:
        done = lab.run(["sh", "-c", script], env={"LD_PRELOAD": str(slow)})
    else:
        library = Path(metamori.__file__).parent / "libmetamori.so"
        done = lab.run(["sh", "-c", script], native=True,
                       env={"LD_PRELOAD": f"{library}:{slow}", "METAMORI_STORE": str(lab.store)})
    assert done.returncode == 0, done.stderr
    wait_until(lambda: (lab.work / "flag").exists(), "the daemon")
    wait_until(lambda: not (lab.store / "run").exists(), "the end of the run")     # until then bytes may be redirected
    wait_until(lambda: lab.verb("restore", 0, code=None).returncode == 0, "the store")
    assert (lab.work / "old").read_bytes() == b"o" * 6000
    assert not (lab.work / "flag").exists()


def test_threads_without_their_leader(lab: Lab, compiled: Compile) -> None:
    """The first thread ends, the others go on: the process lives, and is part of every checkpoint."""
    (lab.work / "c0").write_bytes(b"0" * 100)
    argv = [*lab.argv("run"), "--", str(compiled("leaderless"))]
    session = Session(argv, lab.work, lab.env, lab.folder / "stderr.leaderless")
    lab.sessions.append(session)
    assert session._line() == "alone"
    first = lab.checkpoint()
    size = (lab.work / "grows").stat().st_size
    wait_until(lambda: (lab.work / "grows").stat().st_size > size + 1000, "the thread to go on")
    second = lab.checkpoint()
    assert session.end() == 0
    lab.restore(first)
    small = (lab.work / "grows").stat().st_size
    lab.restore(second)
    assert small < (lab.work / "grows").stat().st_size
    lab.verb("verify")
