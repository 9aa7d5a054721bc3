"""What the numbers were measured on: part of every result, as without it no number means anything."""
from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path


def filesystem(folder: Path) -> str:
    """Type of the filesystem that holds ``folder``, from the longest mount point that is its prefix."""
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        inside = f"{folder.resolve()}/".startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best[1]


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def commit() -> str:
    """The commit of the source tree around the bench, with a + when there are changes; '' without git."""
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True,
                              check=False).stdout.strip()
    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except FileNotFoundError:
        return ""


def description(folder: Path) -> dict[str, object]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "filesystem": filesystem(folder),
        "load_average_before": round(os.getloadavg()[0], 2),
    }
