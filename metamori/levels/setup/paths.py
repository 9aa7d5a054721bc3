"""The names of files and folders of the levels; nobody else makes them up.

    ckpt_dir/nodeN/EXEC/l1|l2|l3/iINDEX/   Ckpt<ID>-Rank<R>.fti, -Pcof<R>.fti (L2), -RSed<R>.fti (L3)
    glbl_dir/EXEC/l4/iINDEX/               Ckpt<ID>-Rank<R>.fti; with keep_l4_ckpt what is left goes to l4_archive/
    meta_dir/EXEC/                         Topology.fti, l<k>/iINDEX/sector<S>-group<G>.fti, ckpt<INDEX>.json

FTI has the files of the last checkpoint directly in l<k>; we keep them all, so each index has a folder of its own.
"""

from __future__ import annotations

import os

from metamori.levels.setup.settings import Settings


class Paths:
    """Of one process. `node` is the name of its node's folder."""

    def __init__(self, settings: Settings, exec_id: str, node: str, sector: int = 0, group: int = 0) -> None:
        self.local = os.path.join(os.path.abspath(settings.ckpt_dir), node, exec_id)
        self.shared = os.path.join(os.path.abspath(settings.glbl_dir), exec_id)
        self.meta = os.path.join(os.path.abspath(settings.meta_dir), exec_id)
        self.stage = os.path.join(os.path.abspath(settings.ckpt_dir), node, exec_id, "stage")
        self.sector, self.group = sector, group

    def folder(self, level: int, index: int) -> str:
        """Where a checkpoint's files of this process lie."""
        return os.path.join(self.shared if level == 4 else self.local, f"l{level}", f"i{index}")

    def data(self, level: int, index: int, number: int, rank: int) -> str:
        return os.path.join(self.folder(level, index), f"Ckpt{number}-Rank{rank}.fti")

    def waiting(self, index: int, number: int, rank: int) -> str:
        """A file on its way to the parallel file system."""
        return os.path.join(self.local, "l4", f"i{index}", f"Ckpt{number}-Rank{rank}.fti")

    def partner(self, index: int, number: int, rank: int) -> str:
        return os.path.join(self.folder(2, index), f"Ckpt{number}-Pcof{rank}.fti")

    def parity(self, index: int, number: int, rank: int) -> str:
        return os.path.join(self.folder(3, index), f"Ckpt{number}-RSed{rank}.fti")

    def together(self, index: int, number: int) -> str:
        """The one file of all ranks (MPI-IO)."""
        return os.path.join(self.folder(4, index), f"Ckpt{number}-mpiio.fti")

    def archive(self) -> str:
        return os.path.join(self.shared, "l4_archive")

    def members(self, level: int, index: int) -> str:
        """What the group's files are."""
        return os.path.join(self.meta, f"l{level}", f"i{index}", f"sector{self.sector}-group{self.group}.fti")

    def record(self, index: int) -> str:
        return os.path.join(self.meta, f"ckpt{index}.json")

    def topology(self) -> str:
        return os.path.join(self.meta, "Topology.fti")
