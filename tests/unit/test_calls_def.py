"""calls.def is THE list: every spelling that libc exports for a call in it is in it too, and all are exported."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from metamori.cli.doctor import NEWEST_KNOWN

ROOT = Path(__file__).resolve().parents[2]
# of libaio and liburing, which may come and go: no part of the list that is looked up in libc
FOREIGN = {"io_submit", "io_uring_setup",
           *("io_uring_queue_init" + more for more in ("", "_params", "_mem"))}
LIBRARY = ROOT / "metamori" / "libmetamori.so"
LIBC = next((path for path in (Path("/lib/x86_64-linux-gnu/libc.so.6"), Path("/lib/aarch64-linux-gnu/libc.so.6"))
             if path.exists()), None)
_SPELLING = re.compile(r"^_*(?:IO_|libc_)?(\w+?)(?:64)?(?:v2)?(?:_chk|_2|_nocancel)?$")


def listed() -> set[str]:
    text = (ROOT / "shim_c" / "src" / "libc" / "calls.def").read_text()
    return set(re.findall(r"^CALL\(\w+, [^,]+, (\w+),", text, re.MULTILINE)) | set(
        re.findall(r"^ALIAS\(\w+, (\w+),", text, re.MULTILINE))


def exported(library: Path) -> dict[str, str]:
    """Symbol -> version, of what a library defines for others."""
    table = subprocess.run(["readelf", "-W", "--dyn-syms", library], capture_output=True, text=True, check=True).stdout
    hidden = set(re.findall(r" HIDDEN +\d+ (\S+)$", table, re.MULTILINE))
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    pairs = [line.split()[-1].replace("@@", "@").partition("@") for line in lines]
    return {name: version for name, _, version in pairs if name not in hidden}


def stem(name: str) -> str:
    """The call that a spelling is of."""
    found = _SPELLING.match(name)
    return found[1] if found else name


@pytest.mark.skipif(LIBC is None, reason="no GNU C library at its usual place")
def test_no_spelling_is_forgotten() -> None:
    calls = listed()
    stems = {stem(name) for name in calls}
    public = {name for name, version in exported(LIBC).items() if version != "GLIBC_PRIVATE"}
    # exit: ends the process through _exit's system call after destructors of ours have run
    assert {name for name in public if stem(name) in stems} - calls == {"exit"}


@pytest.mark.skipif(LIBC is None, reason="no GNU C library at its usual place")
def test_nothing_is_listed_that_libc_does_not_have() -> None:
    assert listed() - set(exported(LIBC)) == set()


@pytest.mark.skipif(not LIBRARY.exists(), reason="the library is not built")
def test_the_library_exports_the_list_and_its_interface() -> None:
    ours = {name for name in exported(LIBRARY) if not name.startswith("metamori_")}
    assert ours == listed() | FOREIGN


# -- everything else that libc exports -----------------------------------------------------------

OTHERS = ROOT / "shim_c" / "src" / "libc" / "calls.others"
KNOWN = NEWEST_KNOWN  # the newest version whose symbols are sorted into calls.def and calls.others
NONE = "takes no path, no descriptor of a file and no stream"
HEADERS = ["aio.h", "arpa/inet.h", "dirent.h", "err.h", "fcntl.h", "fts.h", "ftw.h", "glob.h", "grp.h", "mntent.h",
           "mqueue.h", "pty.h", "pwd.h", "sched.h", "shadow.h", "spawn.h", "stdio.h", "stdio_ext.h", "stdlib.h",
           "string.h", "sys/epoll.h", "sys/eventfd.h", "sys/fanotify.h", "sys/file.h", "sys/inotify.h",
           "sys/ioctl.h", "sys/mman.h",
           "sys/mount.h", "sys/quota.h", "sys/random.h", "sys/resource.h", "sys/select.h", "sys/sendfile.h",
           "sys/signalfd.h", "sys/socket.h", "sys/stat.h", "sys/statfs.h", "sys/statvfs.h", "sys/swap.h", "sys/time.h",
           "sys/timerfd.h", "sys/uio.h", "sys/vfs.h", "sys/wait.h", "sys/xattr.h", "syslog.h", "termios.h", "time.h",
           "unistd.h", "utime.h", "utmp.h", "utmpx.h", "wchar.h", "wordexp.h"]
_TAKES = re.compile(r"\bFILE \*|\b__?\w*(?:fd|file|path|dirname|stream|fildes)\w*\s*[,)]|\b__(?:from|to|dir)\s*[,)]")
_DECLARED = re.compile(
    r"\bextern\b[^;{}]*?\b(\w+)\s*\(([^;{}]*?)\)\s*(?:__attribute__[^;]*|__asm__[^;]*|noexcept)?;")
NOT_FILES = {"swab", "basename"}  # work in memory only


def others() -> dict[str, str]:
    """Symbol -> the reason why it need not be tracked."""
    found: dict[str, str] = {}
    reason = ""
    for line in OTHERS.read_text().splitlines():
        if line.startswith("["):
            reason = line.strip("[]")
        elif line and not line.startswith("#"):
            for name in line.split():
                assert name not in found, f"{name} is there twice"
                found[name] = reason
    return found


def number(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.removeprefix("GLIBC_").split(".") if word.isdigit())


@pytest.mark.skipif(LIBC is None, reason="no GNU C library at its usual place")
def test_every_symbol_is_followed_or_has_a_reason() -> None:
    public = {name: version for name, version in exported(LIBC).items()
              if version.startswith("GLIBC_2") and not name.startswith("GLIBC_")}
    sorted_in = listed() | others().keys()
    assert not listed() & others().keys(), "followed, and with a reason not to be"
    unknown = {name for name in public if name not in sorted_in}
    newer = {name for name in unknown if number(public[name]) > KNOWN}
    assert not unknown - newer, "to be put into calls.def (followed) or calls.others (why it need not be)"
    if newer:
        pytest.skip(f"this libc is newer than the lists: {' '.join(sorted(newer))}")


@pytest.mark.skipif(LIBC is None, reason="no GNU C library at its usual place")
def test_reasons_are_about_symbols_that_exist() -> None:
    if max(number(version) for version in exported(LIBC).values() if version.startswith("GLIBC_2")) != KNOWN:
        pytest.skip(f"this libc is not {KNOWN}: it has others")
    assert others().keys() - exported(LIBC).keys() == set()


def prototypes() -> dict[str, str]:
    """Function -> its parameters, as the C library's headers declare them."""
    present = [name for name in HEADERS if Path("/usr/include", name).exists()
               or any(Path("/usr/include").glob(f"*-linux-gnu/{name}"))]
    source = "#define _GNU_SOURCE\n" + "".join(f"#include <{name}>\n" for name in present)
    try:
        text = subprocess.run(["gcc", "-E", "-P", "-"], input=source, capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the C library's headers cannot be read: {error}")
    found = {}
    for declared in _DECLARED.finditer(text):
        found[declared[1]] = " ".join(declared[2].split()) + ")"
    return found


def test_what_is_said_to_take_no_file_takes_none() -> None:
    """By the words of the headers: a FILE, a descriptor, a path."""
    known = prototypes()
    assert len(known) > 1000
    assert _TAKES.search(known["fread"]) and _TAKES.search(known["fstat"]) and _TAKES.search(known["chmod"])
    claimed = {name for name, reason in others().items() if reason == NONE} - NOT_FILES
    wrong = {name: known[name] for name in claimed if name in known and _TAKES.search(known[name])}
    assert not wrong
