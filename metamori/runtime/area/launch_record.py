"""How a run's command was started: noted in the run area, and from there in the run's first checkpoint.

So an index without memory can be continued from too: its command runs again from its start, on the files as they were.
"""

from __future__ import annotations

import os
import resource
import time

from metamori.errors import MetamoriError
from metamori.runtime.area.run_area import Area
from metamori.store.format import files
from metamori.store.format.records import Launch
from metamori.store.io.os_io import umask
from metamori.store.read.store import Store

OF_JOB = b"METAMORI_OF_JOB="               # in the environment that is recorded of a run's command: it was one of a job


def _path(area: Area, what: str = "launch") -> str:
    return os.path.join(area.path, what)


def program(name: str) -> str:
    """The file that a command's first word means, as execvp finds it; "" when there is none."""
    places = [""] if "/" in name else [f"{folder or '.'}/" for folder in os.get_exec_path()]
    for path in (place + name for place in places if name):
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return ""


def present(command: list[str]) -> Launch:
    """This process's own circumstances, which the command will have."""
    env = tuple(name + b"=" + value for name, value in os.environb.items())
    limits = tuple(resource.getrlimit(number) for number in range(16))
    return Launch(os.fsencode(program(command[0]) or command[0]), tuple(map(os.fsencode, command)), env,
                  os.getcwdb(), umask(), limits)


def note(area: Area, launch: Launch, what: str = "launch") -> None:
    path = _path(area, what)
    with open(f"{path}.new", "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # it holds the environment; and the umask is the program's
        file.write(files.encode_launch(launch))
    os.replace(f"{path}.new", path)  # whole, or not at all: a kill comes at any moment


def of_process(area: Area, known: int) -> Launch:
    """How a process that came back with its memory was started; noted as "process.NUMBER" before it did."""
    with open(_path(area, f"process.{known}"), "rb") as file:
        return files.decode_launch(file.read())


def of_run(area: Area) -> tuple[Launch, ...]:
    """One, or none: a run by hand does not know how it was started."""
    try:
        with open(_path(area), "rb") as file:
            return (files.decode_launch(file.read()),)
    except FileNotFoundError:
        return ()


def note_due(area: Area, due: float) -> None:
    """When the timer takes the next checkpoint, on the monotonic clock; 0: there is no timer."""
    try:
        with open(f"{_path(area, 'due')}.new", "w") as file:
            file.write(f"{due:.3f}")
        os.replace(f"{_path(area, 'due')}.new", _path(area, "due"))
    except OSError:
        pass                               # a full disk: it is for a person to look at only


def due_in(area: Area) -> float | None:
    """Seconds until the timer's next checkpoint; None without a timer."""
    try:
        with open(_path(area, "due")) as file:
            return max(0.0, float(file.read()) - time.monotonic())
    except (FileNotFoundError, ValueError):
        return None


def of_index(store: Store, index: int) -> Launch:
    """The command of the run that made an index; of 0, of the first run that grew from it. MetamoriError, also where
    it was one of many: who starts them all is not known."""
    chain = store.history.chain(index)[:-1] or list(store.history.children(0))
    for each in chain:
        found = store.meta(each).launch
        if found and OF_JOB in found[0].env:
            raise MetamoriError(f"checkpoint {index} is of a job, of which one run alone is nothing: 'metamori restore "
                                f"{index}', then start the job as before")
        if found:
            return found[0]
    raise MetamoriError(f"how the program of checkpoint {index} was started is not recorded (a run by hand?)")
