"""multiprocessing and concurrent.futures: pools that write files of their own and one together, shared descriptors."""

import concurrent.futures
import fcntl
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import tempfile


def own(number):
    with open(f"own.{number}", "w") as file:
        for line in range(500):
            file.write(f"{number} {line}\n")
    with open(f"own.{number}", "r+") as file:
        file.seek(100 * number)
        file.write("changed")
    return number * number


def together(number):
    with open("together", "a") as file:
        for line in range(50):
            file.write(f"{number} {line}\n")
            file.flush()


def counted(_):
    for _ in range(20):
        with open("counter", "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            value = int(file.read())
            file.seek(0)
            file.write(str(value + 1))
            file.flush()
            fcntl.flock(file, fcntl.LOCK_UN)


def queued(queue, name):
    with open(name, "wb") as file:
        while (item := queue.get()) is not None:
            file.write(item)


def inherited(fd, number):
    os.write(fd, b"%d\n" % number)


def main():
    with open("counter", "w") as file:
        file.write("0")
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(3) as pool:
            print(pool.map(own, range(6)))
            pool.map(together, range(4))
            pool.map(counted, range(4))
        with open("together") as file:
            lines = sorted(file)
        with open(f"sorted.{method}", "w") as file:
            file.writelines(lines)
        os.unlink("together")
        subprocess.run(["mark"], check=True)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    writer = context.Process(target=queued, args=(queue, "queued"))
    writer.start()
    for number in range(200):
        queue.put(b"%d\n" % number * 100)
    queue.put(None)
    writer.join()
    fd = os.open("inherited", os.O_CREAT | os.O_RDWR, 0o644)
    for number in range(10):
        child = context.Process(target=inherited, args=(fd, number))
        child.start()
        child.join()
    os.lseek(fd, 0, os.SEEK_SET)
    print(len(os.read(fd, 1000)))
    subprocess.run(["mark"], check=True)
    os.write(fd, b"after")
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        print(sum(threads.map(own, range(12))))
    with concurrent.futures.ProcessPoolExecutor(3) as processes:
        print(sum(processes.map(own, range(4, 10))))
        list(processes.map(counted, range(3)))
    with tempfile.TemporaryFile(dir=".") as file:
        file.write(b"x" * 100_000)
        file.seek(0)
        with open("counted", "w") as counted_into:
            subprocess.run(["wc", "-c"], stdin=file, stdout=counted_into, check=True)
    database = sqlite3.connect("small.db")
    database.execute("CREATE TABLE t(x)")
    database.executemany("INSERT INTO t VALUES(?)", [(n,) for n in range(1000)])
    database.commit()
    subprocess.run(["mark"], check=True)
    database.execute("DELETE FROM t WHERE x % 3 = 0")
    database.commit()
    with open("counter") as file:
        print(file.read(), database.execute("SELECT count(*), sum(x) FROM t").fetchall())


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    main()
