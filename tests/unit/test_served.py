"""A verb that is forked from one that has imported it is as one that was started."""

from __future__ import annotations

import socket
import subprocess

import pytest
import served
from lab import Lab

NAME = b"\xff".decode(errors="surrogateescape")
VERBS = [["log", "--json"], ["log"], ["checkpoint"], ["diff", "0", "1"], ["cat", "1", NAME], ["cat", "1", "f"],
         ["verify"], ["restore", "77"], ["restore", "--no-such-option"], ["log", "--store", ""], ["show"],
         ["undo", "--help"], ["status"]]


@pytest.fixture
def env(lab: Lab) -> dict[str, str]:
    (lab.work / "f").write_text("first")
    lab.run(["sh", "-c", 'echo more >> f; printf "%s" name > "$(printf "\\377")"'])
    return lab.env | {"METAMORI_STORE": str(lab.store)}


@pytest.mark.parametrize("words", VERBS, ids=lambda words: ascii(" ".join(words)))
def test_as_if_it_had_been_started(lab: Lab, env: dict[str, str], words: list[str]) -> None:
    argv = [*served.METAMORI, *words]
    native = subprocess.run(argv, cwd=lab.work, env=env, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    server = served.Server(env)
    for _ in range(2):
        done = server.run(argv, lab.work, env, subprocess.DEVNULL, 60)
        assert (done.returncode, done.stdout, done.stderr) == (native.returncode, native.stdout, native.stderr)


def test_a_server_that_has_ended_is_not_asked_again(lab: Lab, env: dict[str, str]) -> None:
    env |= {"PYTHONHASHSEED": "1"}         # nobody else's
    for _ in range(served.ENOUGH):
        server = served.server_for(env)
    assert server and served.server_for(env) is server
    server._channel.shutdown(socket.SHUT_RDWR)
    assert served.run([*served.METAMORI, "log"], lab.work, env, 60).stdout and served.server_for(env) is None


def test_whose_environment_could_change_what_is_imported(env: dict[str, str]) -> None:
    for _ in range(served.ENOUGH + 1):
        assert served.server_for(env | {"METAMORI_STOPS": "/nowhere"}) is None
    for number in range(served.ENOUGH + 1):
        assert served.server_for(env | {"PATH": f"/{number}"}) is None
