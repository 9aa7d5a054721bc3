"""A program that does random things to two folders, and moves names out of them and in again. By itself it takes
checkpoints, goes back to some, and leaves a picture of each (test_random_sessions.py).

    rover.py SEED COUNT END BACK PICTURES OUTSIDE FOLDER...      END: exit, kill, kill all. BACK: 1, it goes back
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import random
import shutil
import signal
import stat
import subprocess
import sys
import zlib
from collections.abc import Sequence
from typing import Any

Picture = dict[str, tuple[Any, ...]]
_SIZES = [0, 1, 100, 4095, 4096, 5000, 20000, 70000, 200000]
_OFTEN = {"create": 3, "mkdir": 2, "rename": 3, "held_write": 2, "map_write": 2, "overwrite": 3, "append": 2,
          "truncate": 2, "link": 2, "unlink": 2}
_SKIPS = (OSError, ValueError, IndexError)     # it may well be refused, or there is nothing to do it to


def picture(folders: Sequence[str]) -> Picture:
    """Every name with all that comes back: of files mtime, extended attributes and which are one file too."""
    found: Picture = {}
    groups: dict[int, int] = {}
    for folder in folders:
        for where, inner, files in os.walk(folder):
            inner[:] = sorted(name for name in inner if name != ".metamori")
            for name in inner + sorted(files):
                path = os.path.join(where, name)
                st = os.lstat(path)
                if stat.S_ISLNK(st.st_mode):
                    found[path] = "link", os.readlink(path)
                elif stat.S_ISDIR(st.st_mode):
                    found[path] = "folder", oct(st.st_mode)
                elif not stat.S_ISREG(st.st_mode):
                    found[path] = "other", oct(st.st_mode), st.st_mtime_ns
                else:
                    with open(path, "rb") as file:
                        data = file.read()
                    kept = tuple(sorted((each, os.getxattr(path, each)) for each in os.listxattr(path)))
                    found[path] = ("file", oct(st.st_mode), len(data), zlib.crc32(data), st.st_mtime_ns, kept,
                                   groups.setdefault(st.st_ino, len(groups)))
    return found


class Rover:
    """Each `do_` is one thing that it does."""

    def __init__(self, random_: random.Random, folders: list[str], outside: str) -> None:
        self._random, self.folders, self.outside = random_, folders, outside
        self._choice = random_.choice
        self._held: list[int] = []
        self._maps: list[mmap.mmap] = []
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._kinds = [name for name in sorted(dir(self)) if name.startswith("do_")
                       for _ in range(_OFTEN.get(name.removeprefix("do_"), 1))]

    def act(self) -> str:
        what = self._choice(self._kinds)
        try:
            getattr(self, what)()
        except _SKIPS as error:
            return f"{what}: {error}"
        return what

    def let_go(self) -> None:
        """Of what a restore does not give back to a program whose memory it leaves alone."""
        for each in self._maps:
            each.close()
        self._maps.clear()
        self._held.clear()

    # -- chosen ------------------------------------------------------------------------------------

    def _names(self, kinds: str = "lfdo") -> list[str]:
        found = []
        for path, entry in self._walk():
            mode = entry.st_mode
            kind = "l" if stat.S_ISLNK(mode) else "d" if stat.S_ISDIR(mode) else "f" if stat.S_ISREG(mode) else "o"
            if kind in kinds:
                found.append(path)
        return found

    def _walk(self) -> list[tuple[str, os.stat_result]]:
        found = []
        for folder in self.folders:
            for where, inner, files in os.walk(folder):
                inner[:] = sorted(name for name in inner if name != ".metamori")
                found += [(path, os.lstat(path)) for path in
                          (os.path.join(where, name) for name in inner + sorted(files))]
        return found

    def _file(self) -> str:
        return self._choice(self._names("f"))

    def _new(self) -> str:
        return os.path.join(self._choice(self.folders + self._names("d")), self._choice("abcdefgh"))

    def _new_file(self) -> str:
        """Nothing is at it, or a file."""
        path = self._new()
        if os.path.islink(path) or (os.path.exists(path) and not os.path.isfile(path)):
            raise ValueError(path)
        return path

    def _data(self, size: int = -1) -> bytes:
        return self._random.randbytes(self._choice(_SIZES) if size < 0 else size)

    def _put(self, path: str, mode: str = "wb") -> None:
        with open(path, mode) as file:
            file.write(self._data())

    # -- names -------------------------------------------------------------------------------------

    def do_create(self) -> None:
        self._put(self._new_file())

    def do_mkdir(self) -> None:
        os.mkdir(self._new())

    def do_symlink(self) -> None:
        os.symlink(self._choice(["a", "../b", "/nonexistent", "c/d"]), self._new())

    def do_fifo(self) -> None:
        os.mkfifo(self._new())

    def do_rename(self) -> None:
        os.rename(self._choice(self._names()), self._new())

    def do_exchange(self) -> None:
        one, other = self._choice(self._names()), self._choice(self._names())
        self._libc.renameat2(-100, one.encode(), -100, other.encode(), 2)

    def do_cycle(self) -> None:
        first, second, third = self._random.sample(self._names(), 3)
        aside = os.path.join(self.folders[0], "aside")
        os.rename(first, aside)
        try:
            os.rename(second, first)
            os.rename(third, second)
        finally:
            try:
                os.rename(aside, third)
            except OSError:
                pass

    def do_remove_folder(self) -> None:
        folder = self._choice(self._names("d"))
        if self._random.random() < 0.5:
            subprocess.run(["rm", "-rf", folder], check=False)
        else:
            shutil.rmtree(folder)

    def do_become_the_other_kind(self) -> None:
        path = self._choice(self._names())
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
            self._put(path)
        else:
            os.unlink(path)
            os.mkdir(path)
            self._put(path + "/a")

    def do_move_out(self) -> None:
        name, there = self._choice(self._names()), os.path.join(self.outside, f"o{self._random.randrange(5)}")
        subprocess.run(["rm", "-rf", there], check=False)
        os.rename(name, there)

    def do_move_in(self) -> None:
        os.rename(os.path.join(self.outside, self._choice(sorted(os.listdir(self.outside)))), self._new())

    def do_mv(self) -> None:
        subprocess.run(["mv", "-T", self._choice(self._names()), self._new()], stderr=subprocess.DEVNULL, check=False)

    def do_cp(self) -> None:
        subprocess.run(["cp", "-a", self._file(), self._new_file()], stderr=subprocess.DEVNULL, check=False)

    def do_link(self) -> None:
        os.link(self._file(), self._new())

    def do_unlink(self) -> None:
        os.unlink(self._choice(self._names("flo")))

    # -- open files --------------------------------------------------------------------------------

    def do_unlink_open(self) -> None:
        path = self._file()
        self._held.append(os.open(path, os.O_RDWR))
        os.unlink(path)

    def do_hold(self) -> None:
        self._held.append(os.open(self._file(), os.O_RDWR))

    def do_held_write(self) -> None:
        fd = self._choice(self._held)
        at = self._random.randrange(os.fstat(fd).st_size + 5000)
        os.pwrite(fd, self._data(self._choice([1, 100, 4096, 10000])), at)

    def do_held_link(self) -> None:
        self._link_open(self._choice(self._held))

    def do_let_go(self) -> None:
        os.close(self._held.pop(self._random.randrange(len(self._held))))

    def do_nameless(self) -> None:
        fd = os.open(self._choice(self.folders + self._names("d")), os.O_TMPFILE | os.O_RDWR)
        self._held.append(fd)
        os.write(fd, self._data())
        if self._random.random() < 0.5:
            self._link_open(fd)

    def _link_open(self, fd: int) -> None:
        os.link(f"/proc/self/fd/{fd}", self._new(), src_dir_fd=fd)    # without a folder it would be link(): EXDEV

    def do_map(self) -> None:
        fd = os.open(self._file(), os.O_RDWR)
        try:
            self._maps.append(mmap.mmap(fd, 0))
        finally:
            os.close(fd)

    def do_map_write(self) -> None:
        mapped = self._choice(self._maps)
        mapped[self._random.randrange(min(len(mapped), mapped.size()))] = self._random.randrange(256)
        mapped.flush()

    def do_unmap(self) -> None:
        self._maps.pop(self._random.randrange(len(self._maps))).close()

    # -- bytes and attributes ----------------------------------------------------------------------

    def do_sparse(self) -> None:
        with open(self._new_file(), "wb") as file:
            file.seek(self._choice([1 << 20, 1 << 24]))
            file.write(b"x")

    def do_overwrite(self) -> None:
        fd = os.open(self._file(), os.O_WRONLY)
        for _ in range(self._random.randrange(1, 6)):
            os.pwrite(fd, self._data(self._choice([1, 50, 4096, 9000])),
                      self._random.randrange(os.fstat(fd).st_size + 1))
        os.close(fd)

    def do_append(self) -> None:
        self._put(self._file(), "ab")

    def do_truncate(self) -> None:
        path = self._file()
        size = os.path.getsize(path)
        os.truncate(path, self._choice([0, self._random.randrange(size + 1), size + 5000]))

    def do_rewrite(self) -> None:
        self._put(self._file())

    def do_replace(self) -> None:
        path = self._file()
        self._put(path + ".new")
        os.rename(path + ".new", path)

    def do_punch(self) -> None:
        fd = os.open(self._file(), os.O_RDWR)
        at, length = self._random.randrange(os.fstat(fd).st_size + 1), self._choice([10, 4096, 30000])
        self._libc.fallocate(fd, 3, ctypes.c_long(at), ctypes.c_long(length))
        os.close(fd)

    def do_chmod(self) -> None:
        os.chmod(self._choice(self._names("fd")), self._choice([0o700, 0o755, 0o500, 0o000, 0o640, 0o1777]))

    def do_xattr(self) -> None:
        os.setxattr(self._file(), f"user.{self._choice('ab')}", self._data(self._choice([1, 100])))

    def do_remove_xattr(self) -> None:
        os.removexattr(self._file(), f"user.{self._choice('ab')}")

    def do_times(self) -> None:
        os.utime(self._file(), ns=(1, self._random.randrange(1 << 60)))


def main(seed: str, count: str, end: str, back: str, pictures: str, outside: str, *folders: str) -> None:
    import metamori

    random_ = random.Random(int(seed))
    rover, taken = Rover(random_, list(folders), outside), list[int]()

    def leave(name: object) -> None:
        with open(f"{pictures}/new", "wb") as file:
            pickle.dump(picture(folders), file)
        os.rename(f"{pictures}/new", f"{pictures}/{name}")

    for _ in range(int(count)):
        did = rover.act()
        with open(f"{pictures}/log", "a", encoding="utf-8") as log:
            print(did, file=log)
        if random_.random() < 0.08:
            taken.append(metamori.checkpoint())
            leave(taken[-1])
        if back == "1" and taken and random_.random() < 0.04:
            rover.let_go()
            index = random_.choice(taken)
            try:
                metamori.restore(index)
            except OSError:                # a limit that the manual names
                continue
            with open(f"{pictures}/{index}", "rb") as file:
                have, want = picture(folders), pickle.load(file)
            assert have == want, f"not as at checkpoint {index}" + "".join(
                f"\n{path}: have {have.get(path)}, want {want.get(path)}"
                for path in sorted(have.keys() | want.keys()) if have.get(path) != want.get(path))
    leave("last")
    if end == "kill all":
        os.kill(os.getppid(), signal.SIGKILL)
    if end != "exit":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
