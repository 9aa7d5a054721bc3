# needs: h5dump
# check: for f in *.h5; do [ ! -s "$f" ] || h5dump -d /a "$f" > /dev/null || exit 1; done
"""h5py and numpy: a growing data set, a file changed in place, a memory map, an archive."""

import os
import sys

try:
    import h5py
    import numpy
except ImportError:
    for _ in range(2):
        os.system("mark")
    sys.exit(0)

with h5py.File("chunks.h5", "w") as file:
    a = file.create_dataset("a", (0, 64), maxshape=(None, 64), chunks=(16, 64), compression="gzip")
    for step in range(4):
        a.resize(a.shape[0] + 40, axis=0)
        a[-40:] = numpy.arange(40 * 64).reshape(40, 64) + step
        file.flush()
        if step == 2:
            os.system("mark")
with h5py.File("plain.h5", "w") as file:
    file["a"] = numpy.arange(50_000.0)
os.system("mark")
with h5py.File("plain.h5", "r+") as file:
    file["a"][1000:40_000:7] = -1
    file.attrs["changed"] = 1
    file.flush()
    os.system("mark")
    file["a"][5] = 5
    print(file["a"][:].sum())
with h5py.File("core.h5", "w", driver="core", block_size=4096) as file:
    file["a"] = numpy.eye(100)
numpy.save("array.npy", numpy.arange(30_000))
big = numpy.load("array.npy", mmap_mode="r+")
big[100:20_000:3] = 7
big.flush()
os.system("mark")
big[:5] = 9
del big
numpy.savez_compressed("many.npz", x=numpy.arange(1000), y=numpy.ones(10))
print(numpy.load("array.npy").sum(), numpy.load("many.npz")["x"].sum())
numpy.arange(100).tofile("raw")
numpy.fromfile("raw", dtype=int).tofile("raw2")
