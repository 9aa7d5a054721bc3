"""A small job in Python: text, binary, zip, memory maps, temporary files, trees of folders, links."""

import json
import mmap
import os
import pathlib
import shutil
import tempfile
import zipfile

data = pathlib.Path("data")
data.mkdir()
for i in range(20):
    (data / f"{i}.json").write_text(json.dumps({"i": i, "text": "x" * i * 100}))
with open("log.txt", "a", buffering=1) as log:
    for i in range(50):
        print("line", i, file=log)
with open("data/3.json", "r+b") as file:
    file.seek(5)
    file.write(b"0123456789")
    file.truncate(200)
    file.seek(0)
    print(len(file.read()))
with zipfile.ZipFile("all.zip", "w") as archive:
    for path in sorted(data.iterdir()):
        archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes())
with tempfile.NamedTemporaryFile(dir=".", delete=False) as temporary:
    temporary.write(b"temporary" * 1000)
os.replace(temporary.name, "replaced")
os.chmod("replaced", 0o644)
with open("mapped", "w+b") as file:
    file.truncate(20000)
    with mmap.mmap(file.fileno(), 0) as mapping:
        mapping[100:110] = b"abcdefghij"
        mapping.flush()
    file.seek(100)
    print(file.read(12))
shutil.copytree("data", "copy")
shutil.rmtree("data")
os.rename("copy/7.json", "seven")
os.link("seven", "copy/linked")
os.symlink("seven", "soft")
print(sorted(os.listdir("copy")), os.stat("seven").st_nlink)
