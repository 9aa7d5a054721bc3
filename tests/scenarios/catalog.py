"""The ways in which a restarted program finds wrong files: lines for the driver, in `*.txt` here.

A scenario is what the program does before the checkpoint, what it does after it, and how a restarted
program opens its files again (`resume`), so that the lines of `after` meet the same descriptor numbers.
RARE, RARW and RAD are the thesis's (3.6): appended twice, overwritten what must be read, deleted what must
be there. `files` are the ones that exist before the run, name:size; a name that ends in / is a folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass
class Scenario:
    name: str
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    resume: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)

    def prepare(self, work: Path) -> None:
        """Makes the files that exist before the run."""
        for name, size in self.files.items():
            path = work / name
            if name.endswith("/"):
                path.mkdir()
                path.chmod(0o755)
            else:
                path.write_bytes(bytes((i * 7 + i // 251 + len(name)) % 251 for i in range(size)))
                path.chmod(0o644)


def read_scenarios(path: Path) -> list[Scenario]:
    """One scenario per `= name`; a keyword that comes again goes on where it stopped."""
    found: list[Scenario] = []
    for line in path.read_text().splitlines():
        keyword, _, rest = line.partition(" ")
        if keyword == "=":
            found.append(Scenario(rest.strip()))
        elif keyword == "files":
            found[-1].files |= {name: int(size) for name, _, size in (w.partition(":") for w in rest.split())}
        elif keyword in ("before", "after", "resume"):
            getattr(found[-1], keyword).extend(part.strip() for part in rest.split(";"))
        elif keyword not in ("", "#"):
            raise ValueError(f"{path.name}: {line}")
    return found


FIELD, NAMES, DESCRIPTORS, STREAMS = (
    read_scenarios(HERE / f"{name}.txt") for name in ("field", "names", "descriptors", "streams")
)
