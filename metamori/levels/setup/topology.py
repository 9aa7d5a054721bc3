"""Who is where: nodes, groups, rings, heads. Pure: from one node name per process.

A node is node_size processes; with a head, its first process belongs to FTI and the rest to the program. Sector s is
nodes s*group_size to (s+1)*group_size-1; the i-th program process of each of them form a group, so that no two members
of a group share a node. The ring of a group is its nodes' order. Source: FTI manual, "L2", node_size, group_size.
"""

from __future__ import annotations

from dataclasses import dataclass

from metamori.errors import Usage
from metamori.levels.setup.settings import Settings


@dataclass(frozen=True, slots=True)
class Topology:
    """Nodes in their order, each with the ranks (in the program's communicator) of its processes."""

    nodes: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    heads: int                             # per node
    group_size: int

    @property
    def workers(self) -> tuple[int, ...]:
        """World ranks that run the program, in the order of FTI_COMM_WORLD."""
        return tuple(rank for node in self.nodes for rank in node[self.heads:])

    @property
    def head_ranks(self) -> tuple[int, ...]:
        return tuple(node[0] for node in self.nodes) if self.heads else ()

    def node_of(self, rank: int) -> int:
        """Which node a world rank is on."""
        return next(i for i, node in enumerate(self.nodes) if rank in node)

    def place(self, rank: int) -> tuple[int, int, int]:
        """Sector, group (its position in the node, 0 is a head's if there are heads) and rank in the group."""
        node = self.node_of(rank)
        return node // self.group_size, self.nodes[node].index(rank), node % self.group_size

    def group(self, rank: int) -> tuple[int, ...]:
        """World ranks of a rank's group, in ring order."""
        sector, position, _ = self.place(rank)
        first = sector * self.group_size
        return tuple(node[position] for node in self.nodes[first:first + self.group_size])


def arrange(hosts: list[str], settings: Settings, before: tuple[str, ...] = ()) -> Topology:
    """The topology of processes on `hosts` (one name per rank).

    local_test = 1 takes node_size consecutive ranks for a node, wherever they are. `before` are the node names of the
    execution that is being resumed: those that are still there keep their place, new ones fill the gaps.
    Usage when the numbers do not fit.
    """
    size, count = settings.node_size, len(hosts)
    if count % size:
        raise Usage(f"{count} processes do not fill nodes of node_size = {size}")
    if settings.local_test:
        names = tuple(f"node{i}" for i in range(count // size))
        nodes = [tuple(range(i * size, (i + 1) * size)) for i in range(len(names))]
    else:
        by_host: dict[str, list[int]] = {}
        for rank, host in enumerate(hosts):
            by_host.setdefault(host, []).append(rank)
        for host, ranks in by_host.items():
            if len(ranks) != size:
                raise Usage(f"node {host} has {len(ranks)} processes, and node_size = {size} (local_test = 0)")
        names = _ordered(tuple(by_host), before)
        nodes = [tuple(by_host[name]) for name in names]
    group = settings.group_size
    if len(nodes) % group and len(nodes) > 1:
        raise Usage(f"{len(nodes)} nodes do not fill groups of group_size = {group}: "
                    f"the number of processes must be a multiple of {group * size}")
    return Topology(tuple(nodes), names, settings.head, min(group, len(nodes)))


def _ordered(names: tuple[str, ...], before: tuple[str, ...]) -> tuple[str, ...]:
    if len(before) != len(names):
        return names
    fresh = iter(name for name in names if name not in before)
    return tuple(name if name in names else next(fresh) for name in before)
