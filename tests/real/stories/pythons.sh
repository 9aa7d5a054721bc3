# needs: python3
set -e
cat > program.py <<'EOF'
import io, mmap, os, pathlib, shutil, sys, tempfile, zipfile
at = pathlib.Path(sys.argv[1])
at.mkdir()
log = (at / "log").open("w+")
log.writelines(f"{i}\n" for i in range(2000))
log.flush()
data = open(at / "data", "w+b", buffering=0)
data.write(bytes(50_000))
os.system("mark")
data.seek(1234)
data.write(b"written over")
os.pwritev(data.fileno(), [b"one", b"two"], 40_000)
log.seek(100)
print(log.readline().strip(), log.tell())
log.seek(0, io.SEEK_END)
print("the end", file=log, flush=True)
with mmap.mmap(data.fileno(), 0) as pages:
    pages[10:14] = b"page"
shutil.copytree(at, f"{at}.copy")
(at / "log").rename(at / "moved")
os.system("mark")
with zipfile.ZipFile(at / "zip", "w") as archive:
    archive.writestr(zipfile.ZipInfo("x"), "x" * 5000)
with tempfile.NamedTemporaryFile("w", dir=at, delete=False) as new:
    new.write("replaced")
os.replace(new.name, f"{at}.copy/log")
os.truncate(at / "data", 20_000)
os.sendfile(data.fileno(), log.fileno(), 0, 1000)
log.truncate(500)
os.symlink("moved", at / "link")
os.system("mark")
shutil.rmtree(at)
log.seek(0)
print(len(log.read()), os.fstat(data.fileno()).st_nlink, sorted(os.listdir(f"{at}.copy")))
EOF
/usr/bin/python3 program.py one
python3 program.py two
for python in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3 "$(command -v pypy3)"; do
    [ -x "$python" ] && "$python" -c 'import os; os.pwritev' 2>/dev/null || continue
    "$python" program.py "$("$python" -c 'import sys; print(sys.implementation.name, *sys.version_info[:2], sep="-")')"
done
