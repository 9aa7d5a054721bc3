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
for _header in ("area/layout.h", "area/looks.h", "memory/comeback.h", "process/proc_look.h", "base/crc.h",
                "process/stream_state.h", "process/runtime.h", "process/program.h", "process/listener.h"):
    ffibuilder.cdef(_cdef.declarations(_header), packed=False)
ffibuilder.cdef("""
int syncfs(int fd);
uint64_t mm_mixed(uint64_t x, const void *bytes, size_t n);
long mm_rename_new(const char *from, const char *to);
long mm_punch_hole(int fd, int64_t start, int64_t length);
long mm_allocate(int fd, int64_t start, int64_t length);
long mm_write_out(int fd, int64_t start, int64_t length, int wait);
int64_t mm_birth_ns(const char *path, int follow);
int mm_has_flags(const char *path, int append_only);
long mm_order_of_descriptions(int pid, int fd, int other_pid, int other);
long mm_order_of_watched(int pid, int fd, int set_pid, int set, uint32_t number, uint32_t which);
long mm_tee(int from, int to, size_t count);
long mm_pipe_holds(const char *link);
long mm_take_descriptor(int process, int fd);
long mm_name_of_socket(int fd, int of_peer, char *address, uint32_t *length);
long mm_bytes_before(int fd, char *room, uint64_t count);
long mm_connect(int fd, const char *address, uint32_t length);
long mm_bind(int fd, const char *address, uint32_t length);
long mm_epoll(void);
long mm_inotify(int flags);
long mm_epoll_add(int fd, int watched, const char *event);
long mm_signalfd(uint64_t mask, int flags);
long mm_timerfd(int clock, int flags, int how, const char *value);
long mm_timerfd_count(int fd);
long mm_ptrace(long request, int tid, long data);
long mm_signal_mask(int tid, int set, uint64_t *mask);
long mm_sysv_get(uint32_t kind, int key, uint64_t size, int flags);
long mm_sysv_stat(uint32_t kind, int id, char *found);
long mm_sysv_remove(uint32_t kind, int id);
long mm_sysv_limit(int queue, uint64_t bytes);
long mm_sem_values(int id, char *values, int set);
long mm_sem_process(int id, int which);
long mm_message_peek(int queue, uint64_t which, char *message, uint64_t size);
long mm_message_send(int queue, const char *message, uint64_t size);
long mm_queue_open(const char *name, int flags, uint32_t mode, int64_t most, int64_t size);
long mm_queue_unlink(const char *name);
long mm_queue_attributes(int queue, char *words);
long mm_queue_copy(int queue, char *out, uint64_t room, uint64_t most);
long mm_queue_send(int queue, const char *message, uint64_t size, uint32_t priority);
char *mm_shm_attach(int id, int only_read);
long mm_shm_detach(const char *at);
void mm_run_flags(struct mm_area *area, uint32_t set, uint32_t clear);
""")
ffibuilder.set_source(
    "metamori._area",
    """
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/kcmp.h>
#include <mqueue.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include "area/layout.h"
#include "area/looks.h"
#include "memory/comeback.h"
#include "process/proc_look.h"
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

static long mm_allocate(int fd, int64_t start, int64_t length)
{
    return sys(SYS_fallocate, fd, FALLOC_FL_KEEP_SIZE, start, length);
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
    long r = mm_statx(AT_FDCWD, path, follow ? 0 : AT_SYMLINK_NOFOLLOW, &st);
    return r < 0 ? r : (int64_t)sys_birth(&st);
}

/* Of chattr, which keep writers out, and those who change its names. */
static int mm_has_flags(const char *path, int append_only)
{
    struct statx st;
    return mm_statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &st) == 0
        && (st.stx_attributes & (STATX_ATTR_IMMUTABLE | (append_only ? STATX_ATTR_APPEND : 0))) != 0;
}

/* Of the header: whoever changes others of them at the same moment loses none. */
static void mm_run_flags(struct mm_area *area, uint32_t set, uint32_t clear)
{
    uint32_t *flags = &mm_head(area)->flags;
    __atomic_or_fetch(flags, set, __ATOMIC_SEQ_CST);
    __atomic_and_fetch(flags, ~clear, __ATOMIC_SEQ_CST);
}

/* 0: they are one; 1 and 2: which comes first. */
static long mm_order_of_descriptions(int pid, int fd, int other_pid, int other)
{
    return sys(SYS_kcmp, pid, other_pid, KCMP_FILE, fd, other);
}

/* The same of what a set of epoll watches: under a number, of which it may have several. */
static long mm_order_of_watched(int pid, int fd, int set_pid, int set, uint32_t number, uint32_t which)
{
    struct kcmp_epoll_slot slot = { (uint32_t)set, number, which };
    return sys(SYS_kcmp, pid, set_pid, KCMP_EPOLL_TFD, fd, &slot);
}

static long mm_tee(int from, int to, size_t count) { return sys(SYS_tee, from, to, count, SPLICE_F_NONBLOCK); }

/* Of a pipe that a descriptor in /proc leads to: how many bytes can be in it * 2^32 + how many are. */
static long mm_pipe_holds(const char *link)
{
    int count = 0;
    long fd = sys_openat(AT_FDCWD, link, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0)
        return fd;
    long r = sys(SYS_ioctl, fd, FIONREAD, &count), size = r < 0 ? r : sys(SYS_fcntl, fd, F_GETPIPE_SZ);
    sys_close((int)fd);
    return size < 0 ? size : size << 32 | count;
}

/* pidfd_getfd(2) */
static long mm_take_descriptor(int process, int fd) { return sys(438, process, fd, 0); }

static long mm_name_of_socket(int fd, int of_peer, char *address, uint32_t *length)
{
    return of_peer ? sys(SYS_getpeername, fd, address, length) : sys(SYS_getsockname, fd, address, length);
}

/* Of so many bytes of a unix stream: those that were sent before the call that sent the last.  What one call sent is
 * copied whole or does not count, and for the last byte there is no place. */
static long mm_bytes_before(int fd, char *room, uint64_t count)
{
    struct iovec places[2] = { { room, count - 1 }, { NULL, 1 } };
    struct msghdr m = { .msg_iov = places, .msg_iovlen = 2 };
    long r = sys(SYS_recvmsg, fd, &m, MSG_PEEK | MSG_DONTWAIT);
    return r == -EFAULT ? 0 : r;
}

static long mm_connect(int fd, const char *address, uint32_t length) { return sys(SYS_connect, fd, address, length); }
static long mm_bind(int fd, const char *address, uint32_t length) { return sys(SYS_bind, fd, address, length); }

static long mm_inotify(int flags) { return sys(SYS_inotify_init1, flags); }
static long mm_epoll(void) { return sys(SYS_epoll_create1, 0); }

/* One that has fired and was not armed again (EPOLLONESHOT) has no events, which nobody can ask for: it fires once
 * more, into a set in which no other has.  Where nothing lets it, errors and hang-ups do so later. */
static long mm_epoll_add(int fd, int watched, const char *event)
{
    struct epoll_event its, came;
    memcpy(&its, event, sizeof its);
    int is_armed = (its.events & ~(EPOLLONESHOT | EPOLLET | EPOLLWAKEUP)) != 0;
    its.events |= is_armed ? 0 : EPOLLIN | EPOLLOUT;
    long r = sys(SYS_epoll_ctl, fd, EPOLL_CTL_ADD, watched, &its);
    if (r == 0 && !is_armed && sys(SYS_epoll_pwait, fd, &came, 1, 0, 0, 8) == 0)
        r = sys(SYS_epoll_ctl, fd, EPOLL_CTL_MOD, watched, event);
    return r;
}

static long mm_signalfd(uint64_t mask, int flags) { return sys(SYS_signalfd4, -1, &mask, sizeof mask, flags); }

static long mm_ptrace(long request, int tid, long data) { return sys(SYS_ptrace, request, tid, 0, data); }
static long mm_signal_mask(int tid, int set, uint64_t *mask)
{
    return sys(SYS_ptrace, set ? 0x420b : 0x420a, tid, sizeof *mask, mask);
}

/* -- System V; which kind: MM_SYSV_* */
static long mm_sysv_get(uint32_t kind, int key, uint64_t size, int flags)
{
    if (kind == MM_SYSV_MSG)
        return sys(SYS_msgget, key, flags);
    return sys(kind == MM_SYSV_SHM ? SYS_shmget : SYS_semget, key, size, flags);
}

static long control(uint32_t kind, int id, int command, void *what)
{
    if (kind == MM_SYSV_SEM)
        return sys(SYS_semctl, id, 0, command, what);
    return sys(kind == MM_SYSV_SHM ? SYS_shmctl : SYS_msgctl, id, command, what);
}

/* found: 8 words. Key, user, mode; size: bytes, how many semaphores, bytes that a queue takes; how often memory is
 * mapped, or messages in a queue; bytes in them, who sent and who received last. */
static long mm_sysv_stat(uint32_t kind, int id, char *found)
{
    union { struct shmid_ds memory; struct semid_ds semaphores; struct msqid_ds queue; } what;
    long r = control(kind, id, IPC_STAT, &what);
    const struct ipc_perm *p = &what.memory.shm_perm;      /* each begins with one */
    int64_t words[8] = { p->__key, p->uid, p->mode };
    if (r >= 0 && kind == MM_SYSV_SHM)
        words[3] = (int64_t)what.memory.shm_segsz, words[4] = (int64_t)what.memory.shm_nattch;
    if (r >= 0 && kind == MM_SYSV_SEM)
        words[3] = (int64_t)what.semaphores.sem_nsems;
    if (r >= 0 && kind == MM_SYSV_MSG) {
        const struct msqid_ds *q = &what.queue;
        words[3] = (int64_t)q->msg_qbytes, words[4] = (int64_t)q->msg_qnum, words[5] = (int64_t)q->__msg_cbytes;
        words[6] = q->msg_lspid, words[7] = q->msg_lrpid;
    }
    if (r >= 0)
        memcpy(found, words, sizeof words);
    return r;
}

static long mm_sysv_remove(uint32_t kind, int id) { return control(kind, id, IPC_RMID, 0); }

static long mm_sysv_limit(int queue, uint64_t bytes)
{
    struct msqid_ds q;
    long r = sys(SYS_msgctl, queue, IPC_STAT, &q);
    q.msg_qbytes = bytes;
    return r < 0 ? r : sys(SYS_msgctl, queue, IPC_SET, &q);
}

static long mm_sem_values(int id, char *values, int set)
{
    return sys(SYS_semctl, id, 0, set ? SETALL : GETALL, values);
}

static long mm_sem_process(int id, int which) { return sys(SYS_semctl, id, which, GETPID, 0); }

/* message: its type, then its text */
static long mm_message_peek(int queue, uint64_t which, char *message, uint64_t size)
{
    return sys(SYS_msgrcv, queue, message, size, which, IPC_NOWAIT | 040000 /* MSG_COPY */);
}

static long mm_message_send(int queue, const char *message, uint64_t size)
{
    return sys(SYS_msgsnd, queue, message, size, IPC_NOWAIT);
}

/* -- message queues of POSIX; name: as the kernel has it, without the slash. most, size: of messages. */
static long mm_queue_open(const char *name, int flags, uint32_t mode, int64_t most, int64_t size)
{
    struct mq_attr a = { .mq_maxmsg = most, .mq_msgsize = size };
    return sys(SYS_mq_open, name, flags, mode, flags & O_CREAT ? &a : NULL);
}

static long mm_queue_unlink(const char *name) { return sys(SYS_mq_unlink, name); }

/* words: 3. How many messages it takes, of how many bytes, how many there are */
static long mm_queue_attributes(int queue, char *words)
{
    struct mq_attr a;
    long r = sys(SYS_mq_getsetattr, queue, NULL, &a);
    int64_t found[3] = { a.mq_maxmsg, a.mq_msgsize, a.mq_curmsgs };
    memcpy(words, found, sizeof found);
    return r;
}

static long mm_queue_send(int queue, const char *message, uint64_t size, uint32_t priority)
{
    return sys(SYS_mq_timedsend, queue, message, size, priority, NULL);
}

/* There is no looking without taking: all are taken and, at once, sent again in the same order. Each: its size and
 * priority, 4 bytes each, then the message, which may be as long as most. How many, or -errno. */
static long mm_queue_copy(int queue, char *out, uint64_t room, uint64_t most)
{
    uint32_t head[2];
    uint64_t used = 0, at = 0;
    long count = 0, r = 0;
    while (used + sizeof head + most <= room) {
        r = sys(SYS_mq_timedreceive, queue, out + used + sizeof head, most, &head[1], NULL);
        if (r < 0)
            break;
        head[0] = (uint32_t)r, r = 0;
        memcpy(out + used, head, sizeof head);
        used += sizeof head + head[0];
        count++;
    }
    for (long i = 0; i < count; i++, at += sizeof head + head[0]) {
        memcpy(head, out + at, sizeof head);
        long sent = mm_queue_send(queue, out + at + sizeof head, head[0], head[1]);
        r = sent < 0 ? sent : r;
    }
    return r < 0 && r != -EAGAIN ? r : count;
}

/* NULL: it cannot be. */
static char *mm_shm_attach(int id, int only_read)
{
    long r = sys(SYS_shmat, id, 0, only_read ? SHM_RDONLY : 0);
    return r < 0 ? NULL : (char *)r;
}

static long mm_shm_detach(const char *at) { return sys(SYS_shmdt, at); }

/* value: a struct itimerspec; the timer runs. */
static long mm_timerfd(int clock, int flags, int how, const char *value)
{
    long fd = sys(SYS_timerfd_create, clock, flags);
    if (fd >= 0)
        sys(SYS_timerfd_settime, fd, how, value, 0);
    return fd;
}

/* Of one that has gone off and was not asked since, the kernel counts how often only when it is. */
static long mm_timerfd_count(int fd)
{
    int64_t value[4];
    return sys(SYS_timerfd_gettime, fd, value);
}
""",
)

if __name__ == "__main__":
    ffibuilder.compile(verbose=True)
