"""Writes an LMDB database, round after round, while a second process reads it; each round one transaction.

`lmdb_writer.py FOLDER WAY ROUNDS`: prints its pid, "INDEX ROUND" a checkpoint, writes on until it is killed.
Every transaction leaves 40 values that tell the same round; a reader that sees two rounds at once says so and fails.
"""

from __future__ import annotations

import os
import sys

import lmdb

import metamori


def environment(folder: str, writemap: bool = False) -> lmdb.Environment:
    return lmdb.open(folder, map_size=64 << 20, writemap=writemap, max_dbs=1)


def rounds_seen(folder: str) -> set[bytes]:
    with environment(folder) as env, env.begin() as txn:
        return {txn.get(b"same %d" % i) for i in range(40)}


def reader(folder: str, go_on: int) -> None:
    with environment(folder) as env:
        os.set_blocking(go_on, False)
        while True:
            with env.begin() as txn:
                seen = {txn.get(b"same %d" % i) for i in range(40)}
            if len(seen) != 1:
                print("torn:", seen, flush=True)
                os._exit(1)
            try:
                if not os.read(go_on, 1):
                    os._exit(0)
            except BlockingIOError:
                continue


def write(env: lmdb.Environment, number: int) -> None:
    with env.begin(write=True) as txn:
        for i in range(40):
            txn.put(b"same %d" % i, b"%d" % number)
        for i in range(300):
            txn.put(b"%d-%d" % (number, i), os.urandom(10 + i % 500))
        for i in range(0, 300, 3):
            txn.delete(b"%d-%d" % (number - 2, i))
        for i in range(300):
            txn.delete(b"%d-%d" % (number - 4, i))


def main() -> None:
    folder, writemap, rounds = sys.argv[1], sys.argv[2] == "writemap", int(sys.argv[3])
    os.makedirs(folder, exist_ok=True)
    print(os.getpid(), flush=True)
    with environment(folder, writemap) as env:
        write(env, 0)
    go_on, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        reader(folder, go_on)
    with environment(folder, writemap) as env:
        for number in range(1, rounds + 1):
            write(env, number)
            if number % 4 == 0:
                print(metamori.checkpoint(f"round {number}"), number, flush=True)
        os.close(end)
        print("reader", os.waitpid(child, 0)[1], flush=True)
        print("written", flush=True)
        for number in range(rounds + 1, 1 << 30):   # until it is killed
            write(env, number)


if __name__ == "__main__":
    main()
