"""Which benches, on which filesystems, with which options: the whole, the quick and the tiny form of `all`.

`quick` has every row of DESIGN 8 on a quiet machine with two processors in about 25 minutes: what has no row, such as
the overhead of programs that change all of their memory, is left out, and Bonnie++'s single characters, of which a
twentieth of the file is made, are counted in a small file.
`tiny` tries the benches themselves, its numbers mean nothing.
"""
from __future__ import annotations

from collections.abc import Iterable

ROUNDS = {"full": 5, "quick": 3, "tiny": 1}
Step = tuple[str, str, list[str]]          # bench, filesystem ("": that of --dir), options

_QUICK = """
exec       ext4
static     ext4  --count 1000 --file-size 64
names      journaled
bonnie     ext4  --size 2g --phases blocks
bonnie     ext4  --size 128m --phases chars
kept       ext4
programs   journaled
checkpoint ext4
fio        ext4  --file-size 64 --seconds 1
memory     ext4  --sizes 1024 --percents 1
growth     ext4  --only-largest
job        ext4  --runs 1,4,16 --members 256,1024
calls      ext4  --file-size 4
peers      ext4  --sizes 20,200
bonnie     tmpfs --size 512m --phases blocks
kept       tmpfs --file-size 1024
fio        tmpfs --file-size 64 --seconds 1 --only old
names      tmpfs
checkpoint xfs   --sizes 20,2048 --changed= --counts=
kept       xfs   --file-size 1024
fio        xfs   --file-size 64 --seconds 1 --only old
names      xfs
peers      xfs   --sizes 20,200
peers      btrfs --sizes 20,200
"""
_TINY = """
bonnie     ext4  --size 64m --only default --phases blocks
kept       ext4  --file-size 8
fio        ext4  --file-size 4 --seconds 1 --only 1
exec       ext4  --count 5
static     ext4  --count 20 --file-size 4
names      ext4  --count 20
programs   ext4  --only tar
checkpoint ext4  --sizes 20,5000 --changed 100 --counts 25
memory     ext4  --sizes 16 --idle 4
calls      ext4  --file-size 1
growth     ext4  --largest 1
job        ext4  --runs 1 --members 16
peers      ext4  --sizes 4
fio        tmpfs --file-size 8 --seconds 1 --only sparse
checkpoint xfs   --sizes 20 --changed= --counts=
peers      xfs   --sizes 4
peers      btrfs --sizes 4
"""


def steps(size: str, benches: Iterable[str], without: Iterable[str]) -> list[Step]:
    """In the order in which they run."""
    if size == "full":
        found: list[Step] = [(name, "", []) for name in benches]
    else:
        lines = (_QUICK if size == "quick" else _TINY).strip().splitlines()
        found = [(name, where, words) for name, where, *words in map(str.split, lines)]
    return [step for step in found if step[0] not in without and step[1] not in without]
