"""Who takes part: the communicators, the topology and the paths of one process of a job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from metamori.errors import MetamoriError, Usage
from metamori.levels.formats import checksummed_file
from metamori.levels.protect.comm import Alone, Job
from metamori.levels.setup import settings
from metamori.levels.setup.paths import Paths
from metamori.levels.setup.settings import Settings
from metamori.levels.setup.topology import Topology, arrange


@dataclass(slots=True)
class Crew:
    """world: everybody; app: the program's processes (None in a head); group: a ring of one process per node."""

    world: Any
    app: Any
    group: Any
    heads: Any                             # the heads among themselves
    topology: Topology
    settings: Settings
    config: str                            # path of config.fti, "" without one
    exec_id: str
    paths: Paths
    head: bool = False
    known: bool = False                    # the execution has begun before

    @property
    def rank(self) -> int:
        return int(self.app.rank)


def together(world: Any, work: Any) -> Any:
    """The result of rank 0's work for everybody; its MetamoriError too."""
    answer: tuple[Any, str | None] = (None, None)
    if world.rank == 0:
        try:
            answer = (work(), None)
        except (MetamoriError, OSError) as error:
            answer = (None, str(error))
    value, wrong = world.bcast(answer)
    if wrong is not None:
        raise Usage(wrong)
    return value


def muster(world: Any, config: str, given: Settings | None, leave_alone: Callable[..., None]) -> Crew:
    """Read the configuration and find everybody's place; `leave_alone` is told our own files before they are touched.

    Usage when something does not fit.
    """
    chosen: Settings = together(world, lambda: given or settings.read(config))
    leave_alone(chosen.ckpt_dir, chosen.glbl_dir, chosen.meta_dir,
                *([config, f"{os.path.realpath(config)}.{os.getpid()}"] if config else []))
    exec_id = together(world, lambda: _exec_id(chosen))
    host = os.uname().nodename
    hosts = world.allgather(host)
    before = together(world, lambda: _nodes_before(chosen, exec_id))
    topology = together(world, lambda: arrange(hosts, chosen, before))
    sector, position, place = topology.place(world.rank)
    head = world.rank in topology.head_ranks
    paths = Paths(chosen, exec_id, topology.names[topology.node_of(world.rank)], sector, position)
    app: Any
    group: Any
    heads: Any
    if isinstance(world, Alone):
        app = group = heads = world
    else:
        mine: Job = world
        app, heads = mine.subset(topology.workers), mine.subset(topology.head_ranks)
        group = mine.split(sector * chosen.node_size + position, place)
    crew = Crew(world, app, group, heads, topology, chosen, config, exec_id, paths, head, bool(before))
    os.makedirs(paths.local, exist_ok=True)
    together(world, lambda: _prepare_shared(crew))
    return crew


def _exec_id(chosen: Settings) -> str:
    if chosen.failure:
        if chosen.exec_id.upper() == "NULL":
            raise Usage("failure is not 0, so exec_id must name the execution to be resumed")
        return chosen.exec_id
    while True:                            # two runs may begin in the same second
        name = time.strftime("%Y-%m-%d_%H-%M-%S")
        try:
            os.makedirs(os.path.join(os.path.abspath(chosen.meta_dir), name))
            return name
        except FileExistsError:
            time.sleep(0.1)


def _nodes_before(chosen: Settings, exec_id: str) -> tuple[str, ...]:
    try:
        with open(Paths(chosen, exec_id, "").topology(), encoding="utf-8") as file:
            lines = [line.partition("=") for line in file if "=" in line]
        return tuple(value.strip() for key, _, value in lines if key.strip().isdigit())
    except FileNotFoundError:
        return ()


def _prepare_shared(crew: Crew) -> None:
    os.makedirs(crew.paths.meta, exist_ok=True)
    os.makedirs(crew.paths.shared, exist_ok=True)
    text = "[topology]\n" + "".join(f"{i} = {name}\n" for i, name in enumerate(crew.topology.names))
    checksummed_file.put(crew.paths.topology(), text.encode())


def note_failure(crew: Crew, failure: int) -> None:
    """Write failure and exec_id into the configuration file, by rank 0 of the program."""
    if crew.config and crew.rank == 0:
        settings.rewrite(crew.config, failure, crew.exec_id)
