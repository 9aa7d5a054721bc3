"""The ways in which a restarted program finds wrong files, each as a few lines for the driver.

A scenario is what the program does before the checkpoint, what it does after it, and how a restarted program opens
its files again (`resume`), so that the lines of `after` meet the same descriptor numbers. RARE, RARW and RAD are
the thesis's (3.6): appended twice, overwritten what must be read, deleted what must be there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Scenario:
    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    resume: tuple[str, ...] = ()
    files: dict[str, int] = field(default_factory=dict)  # name: size; a name that ends in / is a folder

    def prepare(self, work: Path) -> None:
        """Makes the files that exist before the run."""
        for name, size in self.files.items():
            path = work / name
            if name.endswith("/"):
                path.mkdir(mode=0o755)
            else:
                path.write_bytes(bytes((i * 7 + i // 251 + len(name)) % 251 for i in range(size)))
            path.chmod(0o755 if name.endswith("/") else 0o644)


def _scenario(name: str, before: str, after: str, resume: str = "", **files: int) -> Scenario:
    lines = [tuple(line.strip() for line in text.split(";") if line.strip()) for text in (before, after, resume)]
    given = {key.replace("__", "/").replace("_", "."): size for key, size in files.items()}
    return Scenario(name, lines[0], lines[1], lines[2], given)


# The forms that the field's tools fail at, each run in every variant.
FIELD = [
    _scenario(
        "rare, opened and appended after the checkpoint",
        "open log w,creat; write 3 10 1",
        "open example w,append; write 4 3000 7; write 4 50 8; fsize 4; close 4; write 3 10 2; size log",
        "open log w; lseek 3 10 set",
        example=5000,
    ),
    _scenario(
        "rare, already open with O_APPEND",
        "open example rw,append; write 3 3000 7; lseek 3 0 cur",
        "write 3 4096 8; lseek 3 0 cur; write 3 1 9; fsize 3; pread 3 2000 7000",
        "open example rw,append; lseek 3 8000 set",
        example=5000,
    ),
    _scenario(
        "rare, a stream that appends",
        "fopen 0 example a; fputs 0 300 7; fflush 0",
        "fputs 0 900 8; fflush 0; ftell 0; fprintf 0 40 9; fclose 0; size example",
        "fopen 0 example a",
        example=500,
    ),
    _scenario(
        "rarw, read and then overwritten",
        "open example rw",
        "read 3 3000; lseek 3 0 set; write 3 3000 5; read 3 100; pread 3 5000 0",
        "open example rw",
        example=10000,
    ),
    _scenario(
        "rarw, whole blocks and parts of them",
        "open example rw; pwrite 3 6000 5000 3",
        "pread 3 4096 4096; pwrite 3 4096 4096 4; pread 3 100 8190; pwrite 3 100 8190 5; pread 3 20000 0; "
        "lseek 3 4000 set; read 3 9000; pwrite 3 9000 100 6; pread 3 20000 0",
        "open example rw",
        example=20000,
    ),
    _scenario(
        "rarw, through a stream",
        "fopen 0 example r+; fread 0 100",
        "fread 0 500; fseek 0 200 set; fwrite 0 700 3; fseek 0 0 set; fread 0 2000; ftell 0; fclose 0",
        "fopen 0 example r+; fread 0 100",
        example=4000,
    ),
    _scenario(
        "rarw, every block overwritten twice",
        "open example rw",
        "read 3 40000; lseek 3 0 set; write 3 40000 4; lseek 3 0 set; read 3 40000; lseek 3 0 set; write 3 40000 5",
        "open example rw",
        example=40000,
    ),
    _scenario(
        "rad, unlinked while open",
        "open example rw; read 3 100",
        "read 3 1000; unlink example; write 3 500 6; pread 3 3000 0; exists example; close 3",
        "open example rw; lseek 3 100 set",
        example=3000,
    ),
    _scenario(
        "rad, opened and unlinked only after the checkpoint",
        "open log w,creat; write 3 10 1",
        "open example r; read 4 9000; close 4; unlink example; write 3 20 2",
        "open log w; lseek 3 10 set",
        example=9000,
    ),
    _scenario(
        "rad, renamed after the checkpoint",
        "open log w,creat; write 3 10 1",
        "open example r; read 4 9000; close 4; rename example other; write 3 20 2; exists example; size other",
        "open log w; lseek 3 10 set",
        example=9000,
    ),
    _scenario(
        "rad, renamed while open and written on",
        "open example rw; read 3 50",
        "rename example other; write 3 3000 4; pread 3 9000 0; fsize 3",
        "open example rw; lseek 3 50 set",
        example=9000,
    ),
    _scenario(
        "a file that grew",
        "open new w,creat; write 3 5000 1",
        "write 3 5000 2; write 3 10000 3; fsize 3",
        "open new w; lseek 3 5000 set",
    ),
    _scenario(
        "an old file that grew",
        "open example rw; lseek 3 0 end; write 3 1000 1",
        "write 3 5000 2; pwrite 3 10000 30000 3; fsize 3; pread 3 1000 4500",
        "open example rw; lseek 3 6000 set",
        example=5000,
    ),
    _scenario(
        "truncated in part",
        "open example rw; pwrite 3 2000 6000 1",
        "pread 3 9000 0; ftruncate 3 5000; pread 3 9000 0; fsize 3; ftruncate 3 7000; pread 3 9000 0",
        "open example rw",
        example=9000,
    ),
    _scenario(
        "truncated by name and grown again",
        "open log w,creat; write 3 10 1",
        "size example; truncate example 0; size example; truncate example 12000; open example rw; pread 4 20000 0; "
        "pwrite 4 100 11000 2; write 3 10 2",
        "open log w; lseek 3 10 set",
        example=9000,
    ),
    _scenario(
        "truncated by O_TRUNC and written anew",
        "open log w,creat; write 3 10 1",
        "size example; open example rw,trunc; write 4 3000 5; pread 4 9000 0; close 4; write 3 10 2; size example",
        "open log w; lseek 3 10 set",
        example=9000,
    ),
    _scenario(
        "truncated by fopen w and written anew",
        "open log w,creat; write 3 10 1",
        "size example; fopen 0 example w; fputs 0 3000 5; fclose 0; write 3 10 2; size example",
        "open log w; lseek 3 10 set",
        example=9000,
    ),
    _scenario(
        "replaced by rename",
        "open log w,creat; write 3 10 1",
        "open example r; read 4 6000; close 4; open tmp w,creat; write 4 7000 2; fsync 4; close 4; "
        "rename tmp example; size example; write 3 20 3",
        "open log w; lseek 3 10 set",
        example=6000,
    ),
    _scenario(
        "created and deleted in between",
        "open log w,creat; write 3 10 1",
        "open scratch rw,creat,excl 600; write 4 6000 2; pread 4 100 50; close 4; unlink scratch; write 3 10 2",
        "open log w; lseek 3 10 set",
    ),
    _scenario(
        "created and deleted while open",
        "open log w,creat; write 3 10 1",
        "open scratch rw,creat,excl 600; unlink scratch; write 4 6000 2; pread 4 100 50; write 3 10 2",
        "open log w; lseek 3 10 set",
    ),
]

# Names, folders, links and modes, and rarer ways to write.
NAMES = [
    _scenario(
        "a folder made, and filled",
        "open log w,creat; write 3 10 1",
        "mkdir made; mkdir made/inner; open made/inner/file w,creat,excl; write 4 5000 2; close 4; write 3 9 3",
        "open log w; lseek 3 10 set",
    ),
    _scenario(
        "a folder emptied and removed",
        "open log w,creat; write 3 10 1",
        "unlink folder/file; rmdir folder; exists folder; write 3 9 3",
        "open log w; lseek 3 10 set",
        folder__=0,
        folder__file=700,
    ),
    _scenario(
        "a folder renamed",
        "open folder/file rw; write 3 100 1",
        "rename folder moved; write 3 100 2; open moved/file r; read 4 1000; close 4; exists folder",
        "open folder/file rw; lseek 3 100 set",
        folder__=0,
        folder__file=700,
    ),
    _scenario(
        "a hard link made, written through",
        "open example rw; pwrite 3 10 0 1",
        "link example second; open second rw; pwrite 4 2000 500 2; pread 3 3000 0; size example; close 4",
        "open example rw",
        example=4000,
    ),
    _scenario(
        "one of two hard links removed",
        "open example rw; link example second; pwrite 3 10 0 1",
        "unlink example; pwrite 3 2000 500 2; size second; exists example",
        "open second rw",
        example=4000,
    ),
    _scenario(
        "a symbolic link made and another removed",
        "open example rw; symlink example old; pwrite 3 10 0 1",
        "symlink example young; unlink old; open young rw; pwrite 4 900 5 2; close 4; readlink young; exists old",
        "open example rw",
        example=4000,
    ),
    _scenario(
        "modes changed",
        "open example rw; chmod example 640; pwrite 3 10 0 1",
        "chmod example 400; fchmod 3 755; chmod folder 700; size example; pwrite 3 10 100 2",
        "open example rw",
        example=4000,
        folder__=0,
    ),
    _scenario(
        "unlinked and created again under the same name",
        "open example rw; write 3 100 1",
        "unlink example; open example rw,creat,excl 600; write 4 50 2; write 3 500 3; pread 4 100 0; pread 3 100 0; "
        "close 4; size example",
        "open example rw; lseek 3 100 set",
        example=4000,
    ),
    _scenario(
        "renamed over a file that is open",
        "open example rw; open other rw; write 4 100 1",
        "rename other example; write 4 1000 2; pread 3 4000 0; write 3 500 4; size example; exists other",
        "open example rw; open other rw; lseek 4 100 set",
        example=4000,
        other=2000,
    ),
    _scenario(
        "two names swapped by way of a third",
        "open example rw; write 3 100 1",
        "rename example third; rename other example; rename third other; write 3 50 2; size example; size other",
        "open example rw; lseek 3 100 set",
        example=4000,
        other=2000,
    ),
    _scenario(
        "an empty file made, another moved into a folder",
        "mkdir folder; open log w,creat; write 3 10 1",
        "open empty w,creat,excl 640; close 4; rename example folder/example; truncate folder/example 100; size empty",
        "open log w; lseek 3 10 set",
        example=4000,
    ),
    _scenario(
        "the shell appends and removes",
        "sh echo one >> log",
        "sh echo two >> log; sh cat log example > sum; sh rm example; sh sort -r log -o log; sh mv sum total",
        "",
        example=100,
    ),
    _scenario(
        "a shared mapping writes",
        "open example rw; pwrite 3 1000 500 1",
        "pread 3 9000 0; mapwrite 3 3000 3000 2; pread 3 9000 0; pwrite 3 10 0 3; mapread 3 9000; fsize 3",
        "open example rw",
        example=9000,
    ),
    _scenario(
        "far beyond the end, with a hole",
        "open example rw; pwrite 3 100 100000 1",
        "pwrite 3 100 300000 2; pread 3 500 99900; pread 3 1000 299900; pwrite 3 5000 50000 3; fsize 3",
        "open example rw",
        example=1000,
    ),
    _scenario(
        "kernel copies: sendfile and copy_file_range",
        "open example rw; open target rw,creat; pwrite 3 3000 1000 1",
        "sendfile 3 4 6000; lseek 3 2000 set; sendfile 3 4 5000; lseek 4 0 set; read 4 20000; fsize 4; lseek 3 0 set; "
        "lseek 4 500 set; copyrange 4 3 1500; pread 3 9000 0",
        "open example rw; open target rw",
        example=9000,
    ),
    _scenario(
        "vectors, and single bytes",
        "open example rw; writev 3 900 1",
        "writev 3 700 2; pwritev 3 300 4000 3; write 3 1 4; write 3 1 5; write 3 1 6; preadv 3 9000 0; readv 3 10; "
        "lseek 3 0 cur",
        "open example rw; lseek 3 900 set",
        example=9000,
    ),
    _scenario(
        "a child writes at the shared position",
        "open example rw; write 3 100 1",
        "forkwrite 3 200 2; write 3 100 3; forkwrite 3 1 4; lseek 3 0 cur; pread 3 1000 0",
        "open example rw; lseek 3 100 set",
        example=2000,
    ),
    _scenario(
        "room reserved by posix_fallocate",
        "open new rw,creat; write 3 100 1",
        "fallocate 3 0 9000; fsize 3; pread 3 9000 0; pwrite 3 50 8000 2",
        "open new rw; lseek 3 100 set",
    ),
]
