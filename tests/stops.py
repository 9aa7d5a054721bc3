"""Stop points: hold one thread of a program between two instructions while others go on (shim_c/src/base/check.h).

Only the checked build has them: a test that uses `Stops` runs its programs with `stops.env`.
"""

from __future__ import annotations

from pathlib import Path

from lab import wait_until


class Stops:
    """The points armed for the programs that have `env` in their environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.env = {"METAMORI_CHECKED": "1", "METAMORI_STOPS": str(folder)}

    def arm(self, point: str) -> None:
        """The next thread that comes to `point` stops there."""
        for suffix in (".reached", ".go"):
            (self.folder / f"{point}{suffix}").unlink(missing_ok=True)
        (self.folder / point).touch()

    def wait(self, point: str) -> None:
        """Until a thread stands at `point`."""
        wait_until((self.folder / f"{point}.reached").exists, f"a thread stops at {point}")

    def go(self, point: str) -> None:
        """The thread that stands at `point` goes on; nobody stops there any more."""
        (self.folder / point).unlink(missing_ok=True)
        (self.folder / f"{point}.go").touch()
