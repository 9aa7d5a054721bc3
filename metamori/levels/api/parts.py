"""A checkpoint whose variables come one by one (FTI_InitICP, FTI_AddVarICP, FTI_FinalizeICP).

Each is taken when it is added, into a spool file without a name; the checkpoint is then made from the mapped spool, by
the same code as any other, in any format and at any level.
"""

from __future__ import annotations

import mmap
import os
import tempfile

from metamori.levels.formats import checksummed_file
from metamori.levels.setup.variables import EMPTY, Variable, Variables


class Parts:
    """What has been added so far."""

    def __init__(self, folder: str, level: int, number: int) -> None:
        self.level, self.number = level, number
        os.makedirs(folder, exist_ok=True)
        self.spool = tempfile.TemporaryFile(dir=folder, buffering=0)   # noqa: SIM115  closed by close()
        self.size = 0
        self.added: dict[int, tuple[Variable, int, int]] = {}
        self.mapping: mmap.mmap | None = None

    def add(self, variable: Variable) -> None:
        """Keep its bytes as they are now; a second time replaces the first."""
        start = self.size
        self.size += checksummed_file.write(self.spool.fileno(), [variable.memory])
        self.size = -(-self.size // mmap.PAGESIZE) * mmap.PAGESIZE
        os.ftruncate(self.spool.fileno(), self.size)
        self.spool.seek(self.size)
        self.added[variable.id] = variable, start, variable.size

    def variables(self) -> Variables:
        """Stand-ins whose memory is the spool."""
        found = Variables(max(self.added, default=0))
        if self.size:
            self.mapping = mmap.mmap(self.spool.fileno(), self.size)
        for number, (variable, start, size) in self.added.items():
            memory = memoryview(self.mapping)[start:start + size] if self.mapping and size else EMPTY
            made = found.protect(number, memory, variable.type, variable.name)
            made.attributes, made.dimensions, made.group = variable.attributes, variable.dimensions, variable.group
        return found

    def close(self) -> None:
        self.spool.close()                 # the mapping goes with its last view
