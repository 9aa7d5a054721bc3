"""What the rules about rooms in C and in Python have in common."""

from __future__ import annotations

MOST_FILES = 25                            # in a folder of product code

Uses = dict[str, set[str]]


def circles(graph: Uses) -> list[list[str]]:
    """Files from which a way leads back to themselves: what is left when all that use nothing have gone, and all that
    nobody uses."""
    left = {file: there - {file} for file, there in graph.items()}
    while True:
        used = {each for there in left.values() for each in there}
        gone = {file for file, there in left.items() if not there or file not in used}
        if not gone:
            return [[file, *sorted(there)] for file, there in sorted(left.items())]
        left = {file: there - gone for file, there in left.items() if file not in gone}
