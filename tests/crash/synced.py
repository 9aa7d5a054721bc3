"""What a program has fsynced and not changed since: that has to be there after a power cut, byte for byte."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from pathlib import Path

from files_model import Node
from trial import Trial, parts_of
from world import World


@dataclass
class Fact:
    """A file as it was when its fsync was answered. same: 1 for each byte that nothing has changed since; sizes and
    paths: those that it may have had since."""

    node: Node
    content: bytes
    same: bytearray
    sizes: set[int]
    paths: set[str]
    gone: bool = False

    def goes_on(self, node: Node, world: World) -> None:
        """It may be as in this world, too."""
        now = node.content
        if now != self.content:
            for i in range(len(self.content)):
                if i >= len(now) or now[i] != self.content[i]:
                    self.same[i] = 0
        self.sizes.add(len(now))
        found = set(_paths(world.state.names.root, node, ""))
        self.gone = self.gone or not found
        self.paths |= found

    def holds(self, folder: Path) -> str:
        """"" when one of its paths has every byte that has to be there; else what is missing."""
        why = f"none of {sorted(self.paths)} is there"
        for path in self.paths:
            if not os.path.isfile(folder / path) or os.path.islink(folder / path):
                continue
            have = (folder / path).read_bytes()
            wrong = [i for i, same in enumerate(self.same) if same and have[i:i + 1] != self.content[i:i + 1]]
            if not wrong and min(self.sizes) <= len(have) <= max(self.sizes):
                return ""
            why = f"{path}: {len(have)} bytes, wrong from {wrong[:1]} to {wrong[-1:]}, of {sorted(self.sizes)}"
        return why


def _paths(folder: Node, wanted: Node, prefix: str) -> list[str]:
    found = []
    for name, node in folder.names.items():
        if node is wanted:
            found.append(prefix + name)
        elif node.kind == "folder":
            found += _paths(node, wanted, f"{prefix}{name}/")
    return found


def facts(trial: Trial, stdout: bytes) -> list[Fact]:
    """Of what was answered; the line that was not may be done, in part or not at all."""
    world, found = trial.model(), list[Fact]()
    answers = stdout.decode().split("\n")[:-1]
    for line, _ in zip(trial.script, answers):
        world.apply(line)
        if line.startswith("restore"):
            found = []                     # the program itself took it back
        for fact in found:
            fact.goes_on(fact.node, world)
        if line.startswith(("fsync ", "fdatasync ")):
            node = world.state.descriptors[int(line.split(" ")[1])].node
            size = len(node.content)
            fact = Fact(node, node.content, bytearray(b"\1" * size), {size}, set())
            fact.goes_on(node, world)
            found = [each for each in found if each.node is not node] + [fact]
    if len(answers) < len(trial.script):
        pending = trial.script[len(answers)]
        if pending.startswith("restore"):
            return []
        for line in parts_of(pending, world):
            memo: dict[int, object] = {}
            partly = copy.deepcopy(world, memo)
            partly.apply(line)
            for fact in found:
                node = memo.get(id(fact.node))
                fact.goes_on(node if isinstance(node, Node) else fact.node, partly)
    return [fact for fact in found if not fact.gone]


def hold(found: list[Fact], folder: Path, where: str) -> None:
    """Every fact, or what is missing."""
    wrong = [why for fact in found if (why := fact.holds(folder))]
    assert not wrong, f"fsynced, and not there {where}: {wrong}"
