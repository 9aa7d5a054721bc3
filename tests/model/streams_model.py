"""The model's streams: positions, pushed-back characters and flags of a FILE whose file nobody else uses.

What a stream writes counts as written at once: only the stream itself and `tree`, which flushes, look at it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from files_model import Description, Unforetold, made, told


def text_of(seed: int, length: int) -> bytes:
    """The driver's make_text: lower-case letters, a newline every 23."""
    raw = made(seed, length)
    return bytes(10 if i % 23 == 22 else 97 + byte % 26 for i, byte in enumerate(raw))


@dataclass(eq=False)
class Stream:
    descriptor: int
    description: Description
    pushed: list[int] = field(default_factory=list)
    eof: bool = False
    error: bool = False
    last: str = ""  # read or write: what came last without a seek after it

    @property
    def position(self) -> int:
        return self.description.position

    @position.setter
    def position(self, value: int) -> None:
        self.description.position = value

    def _turn(self, direction: str) -> bool:
        """Whether the stream may do this at all; switching without a seek is undefined in C."""
        allowed = self.description.readable if direction == "read" else self.description.writable
        if not allowed:
            if self.last or self.pushed:
                raise Unforetold  # glibc forgets what is in its buffer
            self.error = True
            return False
        if self.last not in ("", direction) or (direction == "write" and self.pushed):
            raise Unforetold
        self.last = direction
        return True

    def take(self, length: int, stop: int | None = None) -> bytes:
        """Reads up to `length` bytes, not beyond a byte `stop`."""
        if not length:
            raise Unforetold
        if not self._turn("read"):
            return b""
        got = bytearray()
        while len(got) < length:
            if self.pushed:
                got.append(self.pushed.pop())
                self.position += 1
            elif self.eof or self.position >= len(self.description.node.content):
                self.eof = True
                break
            elif stop is None:
                rest = self.description.node.content[self.position : self.position + length - len(got)]
                got += rest
                self.position += len(rest)
            else:
                got.append(self.description.node.content[self.position])
                self.position += 1
            if stop is not None and got and got[-1] == stop:
                break
        return bytes(got)

    def put(self, new: bytes) -> bool:
        if not new:
            raise Unforetold  # glibc may or may not notice that it could not have written
        if not self._turn("write"):
            return False
        if self.description.append:
            self.position = len(self.description.node.content)
        self.description.node.write(self.position, new)
        self.position += len(new)
        return True

    def push(self, byte: int) -> str:
        if not self.description.readable or self.last == "write" or len(self.pushed) > 2:
            raise Unforetold
        if self.position == 0:
            raise Unforetold  # the position would be before the file
        self.pushed.append(byte)
        self.position -= 1
        self.eof = False
        self.last = "read"
        return str(byte)

    def seek(self, offset: int, whence: str) -> str:
        base = {"set": 0, "cur": self.position, "end": len(self.description.node.content)}[whence]
        if base + offset < 0:
            return "-1 EINVAL" if not self.pushed else _unforetold()
        self.position = base + offset
        self.pushed.clear()
        self.eof = False
        self.last = ""
        return "0"

    def operate(self, name: str, words: list[str]) -> str:
        """One of the driver's stream operations on an open stream; `words` follow the slot."""
        if name in ("fread",):
            return told(self.take(int(words[0])))
        if name in ("fgetc", "getc"):
            got = self.take(1)
            return str(got[0]) if got else "-1"
        if name in ("fgets", "getline"):
            if self.last == "write" or not self.description.readable:
                raise Unforetold
            if name == "getline" and self.error:
                return "eof"
            got = self.take(int(words[0]) - 1 if name == "fgets" else 1 << 30, stop=10)
            if b"\0" in got and name == "fgets":
                got = got[: got.index(b"\0")]
            elif not got:
                return "eof"
            return told(got)
        if name in ("fputc", "putc"):
            return words[0] if self.put(bytes([int(words[0])])) else "-1"
        if name == "fwrite":
            done = self.put(made(int(words[1]), int(words[0])))
            return words[0] if done else "0"
        if name in ("fputs", "fprintf"):
            new = text_of(int(words[1]), int(words[0]))
            if name == "fprintf":
                new += b"|" + words[1].encode()
            if not self.put(new):
                return "-1 EBADF"
            return "0" if name == "fputs" else str(len(new))
        return self._state(name, words)

    def _state(self, name: str, words: list[str]) -> str:
        if name == "ungetc":
            return self.push(int(words[0]))
        if name == "fseek":
            return self.seek(int(words[0]), words[1])
        if name == "rewind":
            self.seek(0, "set")
            self.error = False
            return "0"
        if name == "ftell":
            return str(self.position)
        if name == "fflush":
            if self.description.readable:
                raise Unforetold  # fflush of an input stream seeks
            return "0"
        if name == "feof":
            return str(int(self.eof))
        if name == "ferror":
            return str(int(self.error))
        if name == "clearerr":
            self.eof = self.error = False
            return "0"
        if name == "fileno":
            return str(self.descriptor)
        raise Unforetold


def _unforetold() -> str:
    raise Unforetold
