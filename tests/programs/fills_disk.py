"""Overwrites a file in random order (with `append`: and makes it longer) until the disk is full; says what it reads.

stdin: a line lets it go on after it has said "full". The last line is the CRC of the file as this program sees it.
"""

import errno
import os
import random
import sys
import zlib

PIECE = 65536
path, append, seed = sys.argv[1], sys.argv[2] == "append", int(sys.argv[3])
rng = random.Random(seed)
fd = os.open(path, os.O_RDWR)
size = os.fstat(fd).st_size


def step() -> bool:
    global size
    at = size if append and rng.random() < 0.5 else rng.randrange(0, size - PIECE)
    try:
        done = os.pwrite(fd, rng.randbytes(PIECE), at)
    except OSError as error:
        assert error.errno in (errno.ENOSPC, errno.EDQUOT), error
        return False
    size = max(size, at + done)
    return True


for count in range(4000):
    if not step():
        print("full", count, flush=True)
        break
else:
    print("never full", flush=True)
sys.stdin.readline()
failed = sum(not step() for _ in range(20))
crc = 0
for at in range(0, size, PIECE):
    crc = zlib.crc32(os.pread(fd, PIECE, at), crc)
print("failed", failed, flush=True)
print(size, crc, flush=True)
