"""A process of a job's run that is started on another machine becomes a run of the job there (docs/adr/0058).

What it must be told lies in its environment, for everything else may look different there: METAMORI_ELSEWHERE, which
the preload library reads first (shim_c/src/start/elsewhere.c).
"""

from __future__ import annotations

import json
import os

from metamori.config import Config
from metamori.errors import MetamoriError
from metamori.runtime.job.folder import boot
from metamori.tables.record import names_of, record

VARIABLE = "METAMORI_ELSEWHERE"


class Over(MetamoriError):
    """The job is over: what is started now is not part of it, as on the run's own machine."""


@record
class Elsewhere:
    """folder: in which the run began, for its scope. file: what is executed, with the command's words."""

    identity: str
    folder: str
    hops: int = 0
    file: str = ""


def text(config: Config, one: Elsewhere) -> str:
    """The variable's value, for what a run of this machine starts. config: the job's."""
    settings = {name: getattr(config, name) for name in names_of(Config) if name != "origin"}
    settings["track"] = [os.path.abspath(each) for each in config.track]
    return f"{one.hops} {boot()[:8]} {json.dumps([one.identity, one.folder, settings])}"


def read(value: str, file: str) -> tuple[Config, Elsewhere]:
    hops, _, rest = value.split(" ", 2)
    identity, folder, settings = json.loads(rest)
    for name in ("track", "exclude"):
        settings[name] = tuple(settings[name])
    return Config(**settings), Elsewhere(identity, folder, int(hops) + 1, file)
