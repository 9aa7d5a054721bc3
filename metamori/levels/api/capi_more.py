"""FTI's C functions beyond the core: one variable at a time, names, staging, the configuration."""

from __future__ import annotations

import time
from typing import Any

from metamori.errors import MetamoriError
from metamori.levels.api.capi_table import DONE, NSCS, SCES, bound, exported, text

_flipped: dict[str, float] = {"count": 0, "last": 0.0}


@exported()
def FTI_RecoverVarInit() -> int:
    bound.levels.recover_begin()
    return SCES


@exported()
def FTI_RecoverVar(number: int) -> int:
    bound.levels.recover_one(number)
    return SCES


@exported()
def FTI_RecoverVarFinalize() -> int:
    bound.levels.recover_end()
    return SCES


@exported()
def FTI_InitICP(number: int, level: int, activate: bool) -> int:
    if activate:
        bound.levels.begin_parts(level, number)
    return SCES


@exported()
def FTI_AddVarICP(number: int) -> int:
    bound.levels.add_part(number)
    return SCES


@exported()
def FTI_FinalizeICP() -> int:
    return DONE if bound.levels.end_parts() else SCES


@exported()
def FTI_setIDFromString(name: Any) -> int:
    return int(bound.levels.reserve(text(name)))


@exported()
def FTI_getIDFromString(name: Any) -> int:
    return int(bound.levels.named(text(name)))


@exported()
def FTI_GetStageDir(into: Any, room: int) -> int:
    path = bound.levels.stage.folder().encode() + b"\0"
    if len(path) > room:
        raise MetamoriError(f"the name of the stage folder has {len(path)} bytes, and there is room for {room}")
    bound.ffi.memmove(into, path, len(path))
    return SCES


@exported()
def FTI_SendFile(local: Any, remote: Any) -> int:
    return int(bound.levels.stage.send(text(local), text(remote)))


@exported(0)
def FTI_GetStageStatus(number: int) -> int:
    return int(bound.levels.stage.status(number))


@exported()
def FTI_BitFlip(number: int) -> int:
    """Turn one bit of a protected variable, as [Injection] says: a test of the program's own detection."""
    levels = bound.levels
    chosen = levels.settings
    now = time.monotonic()
    if chosen.number <= _flipped["count"] or chosen.rank != levels.crew.rank:
        return NSCS
    if _flipped["last"] and now - _flipped["last"] < chosen.frequency * 60:
        return NSCS
    variable = levels.variables[number]
    at = chosen.index * variable.type.size + chosen.position // 8
    variable.memory[at] ^= 1 << chosen.position % 8
    _flipped["count"] += 1
    _flipped["last"] = now
    return SCES


def _copy(into: Any, value: str) -> None:
    data = value.encode()[:255] + b"\0"
    bound.ffi.memmove(into, data, len(data))


@exported()
def fti_get_config_(config: Any, into: Any) -> int:
    from metamori.levels.setup import settings

    levels = bound.levels
    chosen = settings.read(text(config)) if text(config) else levels.settings
    each = into.configuration
    _copy(each.cfgFile, text(config))
    for name, value in (("localDir", chosen.ckpt_dir), ("glbalDir", chosen.glbl_dir), ("metadDir", chosen.meta_dir)):
        _copy(getattr(each, name), value)
    each.saveLastCkpt, each.keepL4Ckpt, each.verbosity = chosen.keep_last_ckpt, chosen.keep_l4_ckpt, chosen.verbosity
    each.blockSize, each.transferSize = chosen.block_size << 10, chosen.transfer_size << 20
    each.ckptTag, each.stageTag, each.finalTag = chosen.ckpt_tag, chosen.stage_tag, chosen.final_tag
    each.generalTag, each.test, each.ioMode = chosen.general_tag, chosen.local_test, chosen.ckpt_io
    each.dcpEnabled, each.dcpMode, each.dcpBlockSize = chosen.enable_dcp, chosen.dcp_mode, chosen.dcp_block_size
    each.stagingEnabled, each.keepHeadsAlive = chosen.enable_staging, chosen.keep_heads_alive
    for level in range(1, 5):
        into.checkpoint[level].ckptIntv = getattr(chosen, f"ckpt_l{level}")
        into.checkpoint[level].isInline = 1 if level == 1 else getattr(chosen, f"inline_l{level}")
    for name in ("rank", "index", "position", "number", "frequency"):
        setattr(into.injection, name, getattr(chosen, name))
    if levels is not None:
        _running(levels, into)
    return SCES


def _running(levels: Any, into: Any) -> None:
    crew = levels.crew
    _copy(into.execution.id, crew.exec_id)
    into.execution.reco, into.execution.nbVar = levels.status, len(levels.variables)
    into.execution.ckptId = levels.records[levels.parent].id if levels.parent in levels.records else 0
    place = into.topology
    node = crew.topology.node_of(crew.world.rank)
    place.nbProc, place.nbNodes = crew.world.size, len(crew.topology.nodes)
    place.myRank, place.splitRank = crew.world.rank, -1 if crew.head else crew.rank
    place.nodeSize, place.nbHeads = crew.settings.node_size, crew.topology.heads
    place.nbApprocs = crew.settings.node_size - crew.topology.heads
    place.sectorID, place.groupID, place.groupRank = crew.topology.place(crew.world.rank)
    place.groupSize, place.nodeID = crew.topology.group_size, node
    place.amIaHead = int(crew.head)
    place.headRank = crew.topology.nodes[node][0] if crew.topology.heads else -1
    place.right = (place.groupRank + 1) % place.groupSize
    place.left = (place.groupRank - 1) % place.groupSize
