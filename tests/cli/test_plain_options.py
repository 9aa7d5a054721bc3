"""Options read without argparse mean what they mean to argparse, or are left to it."""

from __future__ import annotations

import pytest

from metamori.cli import run
from metamori.cli.options import parser, plain
from metamori.errors import Usage

PLAIN = [
    [], ["true"], ["--", "true"], ["--", "--", "true"], ["sh", "-c", "echo --store x"],
    ["--store", "s", "--", "true", "--isolate"], ["--store=s=t", "true"], ["--store=", "true"], ["--store", "", "true"],
    ["--isolate", "--memory", "--strict", "true"], ["--track", "a", "--track=b", "--exclude", "*.o", "true"],
    ["--every", "10m", "--on-signal=USR1", "--each-command", "--requeue", "--resume", "bash", "-l"],
    ["--mode", "single", "--mode=incremental", "--durability", "process", "--outside=close", "true"],
    ["--on-term", "checkpoint", "--keep-last", "3", "--max-bytes", "1G", "--cache-size=0", "--isolate", "--", "-x"],
]
LEFT = [
    ["--help"], ["-h"], ["--iso", "true"], ["--nothing", "true"], ["--store"], ["--store", "--", "true"],
    ["--store", "-x", "true"], ["--isolate=1", "true"], ["--mode", "other", "true"], ["-", "true"], ["-x", "true"],
]


@pytest.mark.parametrize("words", PLAIN)
def test_plain_ones_are_read_as_by_argparse(words: list[str]) -> None:
    found = plain.read(run, words)
    assert found is not None
    assert vars(found) == vars(parser.parsed(parser.verb_parser("run", run), words))


@pytest.mark.parametrize("words", LEFT)
def test_others_are_left_to_argparse(words: list[str]) -> None:
    assert plain.read(run, words) is None


def test_mistakes_are_named() -> None:
    with pytest.raises(Usage, match="did you mean --isolate"):
        parser.parsed(parser.verb_parser("run", run), ["--isolat", "--isolatex", "true"])
