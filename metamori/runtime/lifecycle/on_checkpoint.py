"""run --on-checkpoint COMMAND: a shell's line for each checkpoint of the run, one after the other, beside the program.

It is no part of the run, and never holds the program up. What comes while one runs waits for it; after the end of the
run all that are left are run, the end's own the last.
"""

from __future__ import annotations

import os

from metamori.errors import MetamoriError, sentence
from metamori.runtime.lifecycle import child_loop
from metamori.store.read.store import Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess


class OnCheckpoint:
    """newest: the last index before the run's first. Nothing is looked at when there is no command."""

    def __init__(self, command: str, newest: int) -> None:
        self._command, self._seen = command, newest
        self._due: list[int] = []
        self._running: tuple[int, subprocess.Popen[bytes]] | None = None

    def look(self, store: Store, told: int) -> None:
        """Now and then. told: the newest index that the run was told of, whether it is written yet or not."""
        if not self._command:
            return
        if told > self._seen:
            self._learn(store)
        self._go_on(store.path)

    def end(self, path: str) -> None:
        """The run is over and its store free: the rest, to the last."""
        if not self._command:
            return
        try:
            with Store.open(path) as store:
                self._learn(store)
        except MetamoriError as error:
            child_loop.say(f"--on-checkpoint: {error}")
        while self._running or self._due:
            if self._running:
                self._running[1].wait()
            self._go_on(path)

    def _learn(self, store: Store) -> None:
        store.look()
        new = [index for index in store.history.indexes if index > self._seen]
        self._due.extend(new)
        self._seen = max([self._seen, *new])

    def _go_on(self, path: str) -> None:
        if self._running:
            index, process = self._running
            status = process.poll()
            if status is None:
                return
            if status:
                child_loop.say(f"--on-checkpoint: the command ended with {status} at checkpoint {index}")
            self._running = None
        if self._due:
            import signal
            import subprocess

            index = self._due.pop(0)
            env = _outside() | {"METAMORI_INDEX": str(index), "METAMORI_STORE": path}
            try:
                self._running = index, subprocess.Popen(
                    ["sh", "-c", self._command], env=env,
                    stdin=subprocess.DEVNULL, stdout=2,
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, child_loop.blocked_before()))
            except OSError as error:
                child_loop.say(f"--on-checkpoint: {sentence(error)}")


def _outside() -> dict[str, str]:
    """The environment, in a nested run too, without our library: the user's own preloads stay."""
    env = dict(os.environ)
    own = [each for each in env.pop("LD_PRELOAD", "").replace(":", " ").split() if "/libmetamori" not in each]
    return env | ({"LD_PRELOAD": ":".join(own)} if own else {})
