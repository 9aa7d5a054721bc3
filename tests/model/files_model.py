"""A plain in-memory model of files, names and descriptors: what a correct kernel answers to the driver.

An answer is the driver's own text. None means that the model does not foretell this operation (it is left out
of the program). Failures follow Linux, so that the model itself is tested against a native run.
"""

from __future__ import annotations

import errno
import zlib
from dataclasses import dataclass, field

_X, _BASE = 20041107, bytearray()
for _ in range(65536):
    _X = (_X * 1103515245 + 12345) & 0xFFFFFFFF
    _BASE.append(_X >> 16 & 255)
_TWICE = bytes(_BASE) * 6


def made(seed: int, length: int) -> bytes:
    """The bytes that the driver makes from a seed (make_bytes)."""
    start = seed * 257 & 65535
    return _TWICE[start : start + length]


def told(content: bytes) -> str:
    """How the driver tells bytes that were read."""
    return f"{len(content)} {zlib.crc32(content):08x}"


class Refused(Exception):
    """The operation fails with this errno."""

    def __init__(self, code: int) -> None:
        super().__init__(errno.errorcode[code])


class Unforetold(Exception):
    """The model leaves this operation out."""


@dataclass(eq=False)
class Node:
    kind: str  # file, folder, link
    mode: int = 0o644
    content: bytes = b""
    names: dict[str, Node] = field(default_factory=dict)  # of a folder
    target: str = ""
    links: int = 1

    def write(self, at: int, new: bytes) -> None:
        if new:
            old = self.content.ljust(at, b"\0")
            self.content = old[:at] + new + old[at + len(new) :]

    def resize(self, size: int) -> None:
        self.content = self.content[:size].ljust(size, b"\0")


@dataclass(eq=False)
class Description:
    """An open description: shared by its dups."""

    node: Node
    readable: bool
    writable: bool
    append: bool
    position: int = 0


@dataclass(eq=False)
class Names:
    """The folder tree of one level of folders, and symbolic links to files."""

    root: Node = field(default_factory=lambda: Node("folder", 0o755))

    def place(self, path: str) -> tuple[Node, str]:
        """The folder that a path's last name is in."""
        first, slash, rest = path.partition("/")
        if not slash:
            return self.root, path
        inner = self.root.names.get(first)
        if inner is None:
            raise Refused(errno.ENOENT)
        if inner.kind == "link":
            raise Unforetold
        if inner.kind != "folder":
            raise Refused(errno.ENOTDIR)
        return inner, rest

    def follow(self, path: str) -> tuple[Node, str, Node | None]:
        """Folder, name and node behind symbolic links; the node is None when it does not exist."""
        for _ in range(41):
            folder, name = self.place(path)
            node = folder.names.get(name)
            if node is None or node.kind != "link":
                return folder, name, node
            path = node.target
            if folder is not self.root:
                raise Unforetold
        raise Refused(errno.ELOOP)

    def existing(self, path: str) -> Node:
        node = self.follow(path)[2]
        if node is None:
            raise Refused(errno.ENOENT)
        return node

    def own(self, path: str) -> tuple[Node, str, Node]:
        """The name itself, links not resolved; it must exist."""
        folder, name = self.place(path)
        if name not in folder.names:
            raise Refused(errno.ENOENT)
        return folder, name, folder.names[name]

    def open(self, path: str, flags: set[str], mode: int) -> Description:
        writable, readable = bool(flags & {"w", "rw"}), bool(flags & {"r", "rw"})
        if {"creat", "excl"} <= flags:
            folder, name = self.place(path)
            if name in folder.names:
                raise Refused(errno.EEXIST)
        folder, name, node = self.follow(path)
        if node is None:
            if "creat" not in flags:
                raise Refused(errno.ENOENT)
            node = folder.names[name] = Node("file", mode & ~0o022)
        elif node.kind == "folder":
            if writable or flags & {"creat", "trunc"}:
                raise Refused(errno.EISDIR)
        elif "trunc" in flags:
            node.content = b""
        return Description(node, readable, writable, "append" in flags)

    def unlink(self, path: str) -> None:
        folder, name, node = self.own(path)
        if node.kind == "folder":
            raise Refused(errno.EISDIR)
        node.links -= 1
        del folder.names[name]

    def rmdir(self, path: str) -> None:
        folder, name, node = self.own(path)
        if node.kind != "folder":
            raise Refused(errno.ENOTDIR)
        if node.names:
            raise Refused(errno.ENOTEMPTY)
        del folder.names[name]

    def new(self, path: str, node: Node) -> None:
        folder, name = self.place(path)
        if name in folder.names:
            raise Refused(errno.EEXIST)
        folder.names[name] = node

    def link(self, old: str, new: str) -> None:
        node = self.own(old)[2]
        folder, name = self.place(new)
        if name in folder.names:
            raise Refused(errno.EEXIST)
        if node.kind == "folder":
            raise Refused(errno.EPERM)
        folder.names[name] = node
        node.links += 1

    def rename(self, old: str, new: str) -> None:
        source, source_name = self.place(old)
        target, target_name = self.place(new)
        node = source.names.get(source_name)
        if node is None:
            raise Refused(errno.ENOENT)
        over = target.names.get(target_name)
        if node is target:
            raise Refused(errno.EINVAL)
        if over is source:
            raise Refused(errno.ENOTEMPTY)
        if over is node:
            return
        if node.kind == "folder" and target is not self.root:
            raise Unforetold  # one level of folders is all that this model knows
        if over is not None:
            if node.kind == "folder" and over.kind != "folder":
                raise Refused(errno.ENOTDIR)
            if node.kind != "folder" and over.kind == "folder":
                raise Refused(errno.EISDIR)
            if over.names:
                raise Refused(errno.ENOTEMPTY)
            over.links -= 1
        del source.names[source_name]
        target.names[target_name] = node

    def tree(self) -> str:
        """The driver's answer to `tree`."""
        parts = ["tree"]

        def draw(folder: Node, prefix: str) -> None:
            for name in sorted(folder.names):
                node, path = folder.names[name], prefix + name
                if node.kind == "file":
                    size, crc = len(node.content), zlib.crc32(node.content)
                    parts.append(f"{path}:f:{node.mode:o}:{size}:{node.links}:{crc:08x}")
                elif node.kind == "link":
                    parts.append(f"{path}:l:777:0:0:00000000")
                else:
                    parts.append(f"{path}:d:{node.mode:o}:0:0:00000000")
                    draw(node, path + "/")

        draw(self.root, "")
        return " ".join(parts)
