"""Builds metamori._area: the run area's C side, for Python."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import cffi

_spec = importlib.util.spec_from_file_location("metamori_cdef", Path(__file__).with_name("cdef.py"))
assert _spec is not None and _spec.loader is not None
_cdef = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_cdef)

ffibuilder = cffi.FFI()
for _header in ("area/layout.h", "base/crc.h", "process/stream_state.h", "process/runtime.h", "process/program.h",
                "process/listener.h"):
    ffibuilder.cdef(_cdef.declarations(_header), packed=False)
ffibuilder.cdef("""
int syncfs(int fd);
long mm_rename_new(const char *from, const char *to);
long mm_punch_hole(int fd, int64_t start, int64_t length);
long mm_write_out(int fd, int64_t start, int64_t length, int wait);
int64_t mm_birth_ns(const char *path, int follow);
long mm_same_description(int pid, int fd, int other_pid, int other);
long mm_tee(int from, int to, size_t count);
long mm_take_descriptor(int process, int fd);
long mm_name_of_socket(int fd, int of_peer, char *address, uint32_t *length);
long mm_connect(int fd, const char *address, uint32_t length);
long mm_bind(int fd, const char *address, uint32_t length);
long mm_epoll(void);
long mm_epoll_add(int fd, int watched, const char *event);
long mm_signalfd(uint64_t mask, int flags);
long mm_timerfd(int clock, int flags, const char *value);
long mm_ptrace(long request, int tid, long data);
""")
ffibuilder.set_source(
    "metamori._area",
    """
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/kcmp.h>
#include "area/layout.h"
#include "base/sys.h"
#include "base/crc.h"
#include "process/listener.h"
#include "process/program.h"
#include "process/stream_state.h"
#include "process/runtime.h"

/* System calls that Python has no function for; -errno.  Of the kernel, also inside a program under the library. */
static long mm_rename_new(const char *from, const char *to)
{
    return sys(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 1);    /* RENAME_NOREPLACE */
}

static long mm_punch_hole(int fd, int64_t start, int64_t length)
{
    return sys(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, start, length);
}

static long mm_write_out(int fd, int64_t start, int64_t length, int wait)
{
    return sys(SYS_sync_file_range, fd, start, length, SYNC_FILE_RANGE_WRITE
               | (wait ? SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER : 0));
}

/* 0: not known. */
static int64_t mm_birth_ns(const char *path, int follow)
{
    struct statx st;
    long r = sys_statx(AT_FDCWD, path, follow ? 0 : AT_SYMLINK_NOFOLLOW, STATX_BTIME, &st);
    return r < 0 ? r : st.stx_mask & STATX_BTIME ? st.stx_btime.tv_sec * 1000000000 + st.stx_btime.tv_nsec : 0;
}

static long mm_same_description(int pid, int fd, int other_pid, int other)
{
    return sys(SYS_kcmp, pid, other_pid, KCMP_FILE, fd, other) == 0;
}

static long mm_tee(int from, int to, size_t count) { return sys(SYS_tee, from, to, count, SPLICE_F_NONBLOCK); }

/* pidfd_getfd(2) */
static long mm_take_descriptor(int process, int fd) { return sys(438, process, fd, 0); }

static long mm_name_of_socket(int fd, int of_peer, char *address, uint32_t *length)
{
    return of_peer ? sys(SYS_getpeername, fd, address, length) : sys(SYS_getsockname, fd, address, length);
}

static long mm_connect(int fd, const char *address, uint32_t length) { return sys(SYS_connect, fd, address, length); }
static long mm_bind(int fd, const char *address, uint32_t length) { return sys(SYS_bind, fd, address, length); }

static long mm_epoll(void) { return sys(SYS_epoll_create1, 0); }
static long mm_epoll_add(int fd, int watched, const char *event) { return sys(SYS_epoll_ctl, fd, 1, watched, event); }

static long mm_signalfd(uint64_t mask, int flags) { return sys(SYS_signalfd4, -1, &mask, sizeof mask, flags); }

static long mm_ptrace(long request, int tid, long data) { return sys(SYS_ptrace, request, tid, 0, data); }

/* value: a struct itimerspec; the timer runs. */
static long mm_timerfd(int clock, int flags, const char *value)
{
    long fd = sys(SYS_timerfd_create, clock, flags);
    if (fd >= 0)
        sys(SYS_timerfd_settime, fd, 0, value, 0);
    return fd;
}
""",
)

if __name__ == "__main__":
    ffibuilder.compile(verbose=True)
