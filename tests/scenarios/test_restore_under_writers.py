"""`restore --force` in a live run: processes that have files open for writing go on where they were at the index."""

from __future__ import annotations

import pytest
from lab import Lab
from test_undo import Shell

# each takes a line from standard input, writes it to its file and answers with it
WRITERS = {
    "loop": "while read -r line; do echo $line >&7; echo $line; done 7> loop",
    "appends": "while read -r line; do echo $line >&7; echo $line; done 7>> appends",
    "stream": "sed -nu -e 'w stream' -e p",
    "old": """python3 -c '
import os, sys
old = os.open("old", os.O_RDWR)
for line in sys.stdin:
    os.write(old, line.encode())
    print(line, end="", flush=True)
'""",
    "child": "while read -r line; do (echo $line >&7); echo $line; done 7<> child",
}
OLD = "".join(f"{n:07}\n" for n in range(2000))


class Writers:
    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        for name, command in WRITERS.items():
            shell.do(f"mkfifo in.{name} out.{name}; ( {command} ) < in.{name} > out.{name} & "
                     f"exec {{to_{name}}}> in.{name} {{from_{name}}}< out.{name}")

    def write(self, line: str) -> None:
        for name in WRITERS:
            said = self.shell.do(f"echo {line} >&$to_{name}; read -r said <&$from_{name}; echo $said")
            assert said == f"{line}\n", (name, said)

    def assert_files(self, *lines: str) -> None:
        text = "".join(f"{line}\n" for line in lines)
        for name in WRITERS:
            want = text + OLD[len(text):] if name == "old" else text
            assert self.shell.do(f"cat {name}") == want, name

    def end(self) -> None:
        for name in WRITERS:
            self.shell.do(f"exec {{to_{name}}}>&- {{from_{name}}}<&-")
        self.shell.do("wait; rm in.* out.*")
        self.shell.end()


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_they_write_on_where_they_were(lab: Lab, options: list[str]) -> None:
    (lab.work / "old").write_text(OLD)
    writers = Writers(Shell(lab, *options))
    writers.write("first")
    writers.shell.do("$M checkpoint")
    writers.write("second of them")
    writers.shell.do("$M checkpoint")
    writers.write("third")
    assert "open for writing" in writers.shell.do("$M restore 1", status=11)
    writers.assert_files("first", "second of them", "third")
    assert "while open for writing: " in writers.shell.do("$M restore 1 --force")
    writers.assert_files("first")
    writers.write("another second")
    writers.assert_files("first", "another second")
    writers.shell.do("$M checkpoint")
    writers.shell.do("$M restore 2 --force")
    writers.assert_files("first", "second of them")
    writers.write("other third")
    writers.assert_files("first", "second of them", "other third")
    writers.shell.do("$M restore last --force")
    writers.shell.do("$M restore 1 --force loop old")
    assert writers.shell.do("cat loop stream") == "first\nfirst\nanother second\n"
    writers.end()
    lab.verb("verify")


def test_what_was_opened_since_leaves_no_hole(lab: Lab) -> None:
    shell = Shell(lab)
    shell.do("echo one > log; $M checkpoint; exec 7<> log; echo longer than one >&7; $M undo --force; echo two >&7")
    assert shell.do("cat log") == "one\ntwo\n"
    shell.do("exec 7> new; echo here >&7; $M undo --force; test ! -e new; echo nowhere >&7; exec 7>&-; test ! -e new")
    shell.end()
    lab.verb("verify")


def test_a_script_is_not_run_once_more(lab: Lab) -> None:
    """The shell reads it through a descriptor of a file that the run has written."""
    shell = Shell(lab)
    shell.do("printf '%s\\n' 'echo a >> ran' '$M checkpoint' 'exec 7> f' 'echo x >&7' '$M undo --force' "
             "'echo b >> ran' > script")
    shell.do("bash script; cat ran")
    assert shell.do("cat ran") == "a\nb\n"
    shell.end()


MAPPED = """
import mmap, subprocess, sys
def metamori(*words):
    return subprocess.run([*sys.argv[1:], *words], capture_output=True, text=True)
with open("f", "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)       # and nothing else has it open
mapped[:4] = b"one."
assert metamori("checkpoint").stdout == "1\\n"
mapped[:4] = b"two."
mapped[5000:5004] = b"two."
assert " by python3 (" in metamori("undo").stderr
assert mapped[:4] == b"two."
assert "while open for writing: " in metamori("undo", "--force").stderr
assert mapped[:4] == open("f", "rb").read(4) == b"one." and mapped[5000:5004] == bytes(4)
mapped[:4] = b"else"
assert open("f", "rb").read(4) == b"else"
"""


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["default", "isolate"])
def test_a_mapping_shows_what_the_file_was(lab: Lab, options: list[str]) -> None:
    (lab.work / "f").write_bytes(bytes(9000))
    done = lab.run(["python3", "-c", MAPPED, *lab.argv("x")[:3]], *options)
    assert done.returncode == 0, done.stderr.decode()
    assert (lab.work / "f").read_bytes() == b"else" + bytes(8996)
    for index, text in ((1, b"one."), (2, b"two."), (3, b"else"), (0, bytes(4))):
        lab.restore(index)
        assert (lab.work / "f").read_bytes()[:4] == text
