/* requests.c - from process to process of a run: an image of one's memory, a call for `metamori run`. */
#define _GNU_SOURCE
#include "area/area_internal.h"

#include <linux/ioctl.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define PR_SET_MM 35
#define PR_SET_MM_MAP_SIZE 15
#define MEMORY_SIGNAL 32
#define MEMORY_ASK 0x6d746d72ul
#define NO_ROOM "there is no room for a signal to it (ulimit -i)"

static long queue(uint32_t pid, int number, uint64_t value)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = number;
    info.si_code = SI_QUEUE;
    info.si_value.sival_ptr = (void *)value;
    return sys(SYS_rt_sigqueueinfo, pid, number, &info);
}

struct mm_memory *mm_memory_of(struct mm_area *a, uint32_t process)
{
    uint32_t page = mm_proc(a, process)->memory;
    return page ? mm_page(a, page) : NULL;
}

/* Of one that has been asked: there is one. */
static struct mm_memory *asked_memory(struct mm_area *a, uint32_t process)
{
    struct mm_memory *m = mm_memory_of(a, process);
    MM_ASSERT(m);
    if (!m)
        __builtin_unreachable();
    return m;
}

static void ask(struct mm_memory *m)
{
    __atomic_store_n(&m->state, MM_MEMORY_ASKED, __ATOMIC_SEQ_CST);
    if (m->stands)
        sys_futex_wake(&m->stands, 1 << 30);
    m->message[0] = 0;
    if (queue(m->pid, MEMORY_SIGNAL, MEMORY_ASK) == -EAGAIN)
        strcpy(m->message, NO_ROOM);
}

/* All threads of these processes are to park; mm_memory_held waits for each.  The caller has filled in index, base and durable, and
 * knows that each has room for it.  From the first to the last all stand still: so many are asked, and let go, at once. */
void mm_memory_ask(struct mm_area *a, const uint32_t *processes, const uint32_t *pids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct mm_memory *m = asked_memory(a, processes[i]);
        m->pid = pids[i];
        m->asker = (uint32_t)sys_getpid();
        m->error = m->runs = 0;
        ask(m);
    }
}

/* Idle: it joined after it was asked, so nobody has answered. */
static int has_failed(struct mm_memory *m)
{
    uint32_t state = __atomic_exchange_n(&m->state, MM_MEMORY_IDLE, __ATOMIC_ACQ_REL);
    return state == MM_MEMORY_FAILED && m->error ? -(int)m->error : -EINPROGRESS;
}

/* The letter of its state; 0: it has ended, and was waited for. */
int mm_proc_state(uint32_t pid)
{
    char path[40] = "/proc/", text[128];
    strcpy(mm_digits(path + 6, pid), "/stat");
    long fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), n = fd < 0 ? 0 : sys_pread((int)fd, text, sizeof text - 1, 0);
    if (fd >= 0)
        sys_close((int)fd);
    text[n > 0 ? n : 0] = 0;
    const char *end = strrchr(text, ')');
    return end && end[1] ? end[2] : 0;
}

/* Alive or not. */
int mm_proc_writes_image(uint32_t pid)
{
    char path[40] = "/proc/", text[64];
    strcpy(mm_digits(path + 6, pid), "/comm");
    long fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), n = fd < 0 ? 0 : sys_pread((int)fd, text, sizeof text, 0);
    if (fd >= 0)
        sys_close((int)fd);
    return n == sizeof MM_WRITER_NAME && memcmp(text, MM_WRITER_NAME "\n", sizeof MM_WRITER_NAME) == 0;
}

/* Does this thread wait in the kernel until a child that has its memory becomes another program, or ends?  No signal reaches it. */
static int is_in_vfork(const char *thread)
{
    char path[64] = "", text[64];
    strcat(strcat(path, thread), "/syscall");
    long fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), n = fd < 0 ? 0 : sys_pread((int)fd, text, sizeof text - 1, 0);
    if (fd >= 0)
        sys_close((int)fd);
    text[n > 0 ? n : 0] = 0;
    char *end;
    long call = strtol(text, &end, 10);    /* "running" is none */
    uint64_t flags = *end == ' ' ? strtoul(end, NULL, 16) : 0;
#ifdef SYS_vfork
    if (end > text && call == SYS_vfork)
        return 1;
#endif
    return end > text && ((call == SYS_clone && flags & CLONE_VFORK) || call == SYS_clone3);
}

int mm_proc_in_vfork(uint32_t pid)
{
    struct { uint64_t ino; int64_t off; unsigned short length; unsigned char type; char name[]; } *entry;
    char list[1024] __attribute__((aligned(8))), path[48] = "/proc/", *end = mm_digits(path + 6, pid);
    int found = 0;
    strcpy(end, "/task");
    long folder = sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (folder < 0)
        return 0;
    for (long n; !found && (n = sys(SYS_getdents64, folder, list, sizeof list)) > 0;)
        for (long at = 0; !found && at < n; at += entry->length) {
            entry = (void *)(list + at);
            end[5] = '/';
            strcpy(end + 6, entry->name);
            found = entry->name[0] != '.' && is_in_vfork(path);
        }
    sys_close((int)folder);
    return found;
}

/* Of a process that job control has stopped nothing comes by itself: its threads are let run (runtime/memory/stopped.py). */
static int is_stopped(const struct mm_memory *m, long waited)
{
    return m->stands || (waited == -ETIMEDOUT && mm_proc_state(m->pid) == 'T');
}

/* All its threads are parked, until mm_memory_go.  -errno: it runs on, memory.message may say why; -EDEADLK: it waits for a child,
 * which may wait for us; -EALREADY: it is stopped, and asked all the same. */
int mm_memory_held(struct mm_area *a, uint32_t process, int timeout_ms)
{
    struct mm_memory *m = asked_memory(a, process);
    uint32_t state, asked = MM_MEMORY_ASKED;
    for (int waited = 0, again = 0; (state = __atomic_load_n(&m->state, __ATOMIC_ACQUIRE)) == MM_MEMORY_ASKED
                          || state == MM_MEMORY_AGAIN;) {
        if (state == MM_MEMORY_AGAIN) {
            if (++again > timeout_ms * 5)
                return -EAGAIN;
            sys_pause_us(100);
            ask(m);
        }
        int becomes = mm_proc(a, process)->executing || mm_proc(a, process)->outside;   /* what waits in freezes */
        long woken = sys_futex_wait(&m->state, MM_MEMORY_ASKED, m->stands ? 500 : 50000);
        int waits = woken == -ETIMEDOUT && !m->stands && mm_proc_in_vfork(m->pid);
        if (woken == -ETIMEDOUT && !m->stands && ((waited += 50) >= timeout_ms || becomes || waits)
            && __atomic_compare_exchange_n(&m->state, &asked, MM_MEMORY_IDLE, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return becomes ? -EINPROGRESS : waits ? -EDEADLK : -EAGAIN;
        if (woken == -ETIMEDOUT && !mm_start_time(m->pid))     /* killed, and maybe not yet reaped: we may be its parent */
            return -ESRCH;
        if (is_stopped(m, woken))
            return -EALREADY;
        if (woken == -ETIMEDOUT && !strcmp(m->message, NO_ROOM))       /* it was not asked yet */
            ask(m);
    }
    return state == MM_MEMORY_HELD ? 0 : has_failed(m);
}

static void wake_in(struct mm_area *a, const uint32_t *processes, uint32_t count, uint32_t state)
{
    for (uint32_t i = 0; i < count; i++) {
        struct mm_memory *m = asked_memory(a, processes[i]);
        __atomic_store_n(&m->state, state, __ATOMIC_SEQ_CST);
        sys_futex_wake(&m->state, 1 << 30);
    }
}

/* Every process is parked: their images; mm_memory_gathered waits until all is known of one that it takes from the process. */
void mm_memory_gather(struct mm_area *a, const uint32_t *processes, uint32_t count) { wake_in(a, processes, count, MM_MEMORY_GATHER); }

int mm_memory_gathered(struct mm_area *a, uint32_t process)
{
    struct mm_memory *m = asked_memory(a, process);
    uint32_t state;
    while ((state = __atomic_load_n(&m->state, __ATOMIC_ACQUIRE)) == MM_MEMORY_GATHER) {
        long woken = sys_futex_wait(&m->state, MM_MEMORY_GATHER, m->stands ? 500 : 50000);
        if (woken == -ETIMEDOUT && !mm_start_time(m->pid))
            return -ESRCH;
        if (is_stopped(m, woken))
            return -EALREADY;
    }
    return state == MM_MEMORY_STOPPED ? 0 : has_failed(m);
}

void mm_memory_go(struct mm_area *a, const uint32_t *processes, uint32_t count) { wake_in(a, processes, count, MM_MEMORY_IDLE); }

/* Until all run that can: whoever looks on sleeps, and has no processor that one of them waits for. */
static void await_running(struct mm_area *a, const uint32_t *processes, uint32_t count)
{
    long patience = 20;
    for (uint32_t i = count; i-- > 0 && patience > 0;) {   /* those let go last */
        struct mm_memory *m = asked_memory(a, processes[i]);
        while (!__atomic_load_n(&m->runs, __ATOMIC_ACQUIRE) && !m->stands && patience > 0)
            patience -= sys_futex_wait(&m->runs, 0, 5000) == -ETIMEDOUT;
    }
}

/* When all run again the writers may have the processors, too. */
void mm_memory_write(struct mm_area *a, const uint32_t *processes, uint32_t count)
{
    await_running(a, processes, count);
    for (uint32_t i = 0; i < count; i++) {
        struct mm_memory *m = asked_memory(a, processes[i]);
        __atomic_store_n(&m->writes, 1, __ATOMIC_RELEASE);
        sys_futex_wake(&m->writes, 1 << 30);
    }
}

/* The image is written: 0, -EAGAIN (not yet), or what its writing failed with. */
int mm_memory_wait(struct mm_area *a, uint32_t process, int timeout_ms)
{
    struct mm_memory *m = asked_memory(a, process);
    uint32_t written;
    if (!__atomic_load_n(&m->written, __ATOMIC_ACQUIRE))
        sys_futex_wait(&m->written, 0, timeout_ms * 1000l);
    written = __atomic_load_n(&m->written, __ATOMIC_ACQUIRE);
    if (!written)
        return !mm_start_time(m->writer) && !__atomic_load_n(&m->written, __ATOMIC_ACQUIRE) ? -EIO : -EAGAIN;
    return written == MM_MEMORY_WRITTEN ? 0 : m->write_error ? -(int)m->write_error : -EIO;
}

/* Brought back while it waited for the lock, it has that by a number which is nobody's any more, or that of a run which is over; its
 * own number may be what it was.  The run whose lock it has. */
static uint64_t lock_request(const struct mm_header *h, struct mm_request *r)
{
    uint64_t run = 0;
    while (run != h->run) {
        if (run) {
            mm_lock_left(&r->lock);
            mm_release_if(&r->lock, (uint32_t)sys_gettid());
        }
        run = h->run;
        mm_lock(&r->lock, MM_LOCK_REQUEST);
        MM_STOP("request.locked");
    }
    return run;
}

/* A call for `metamori run`; its result.  -ESRCH: it is not there any more.  0: the caller came back here with its memory. */
int mm_request(struct mm_area *a, int what, long argument, const char *message)
{
    struct mm_request *r = &a->head->request;
    uint64_t run = lock_request(a->head, r);
    MM_STOP("request.held");
    r->what = what;
    r->argument = argument;
    r->pid = (uint32_t)sys_getpid();
    strncpy(r->message, message ? message : "", sizeof r->message - 1);
    uint32_t ticket = __atomic_add_fetch(&r->posted, 1, __ATOMIC_ACQ_REL), seen;
    int result = 0;
    queue(a->head->supervisor, MM_REQUEST_SIGNAL, ticket);
    while (run == a->head->run && (int32_t)((seen = __atomic_load_n(&r->answered, __ATOMIC_ACQUIRE)) - ticket) < 0
           && !result) {
        sys_futex_wait(&r->answered, seen, 1000000);
        result = mm_start_time(a->head->supervisor) ? 0 : -ESRCH;
    }
    if (run != a->head->run) {             /* another process, brought back from an image: the lock is a fresh one */
        mm_lock_left(&r->lock);
        return 0;
    }
    result = result ? result : r->result;
    mm_unlock(&r->lock);
    return result;
}

int mm_request_pending(struct mm_area *a)
{
    struct mm_request *r = &a->head->request;
    return __atomic_load_n(&r->posted, __ATOMIC_ACQUIRE) != __atomic_load_n(&r->answered, __ATOMIC_ACQUIRE);
}

void mm_request_answer(struct mm_area *a, int result)
{
    struct mm_request *r = &a->head->request;
    r->result = result;
    __atomic_store_n(&r->answered, r->posted, __ATOMIC_RELEASE);
    sys_futex_wake(&r->answered, 1 << 30);
}

/* Does this kernel keep a record of the pages that a process changes, and let this user have it?  0, -errno; what the engine
 * itself needs (memory/changes.c). */
int mm_changes_possible(void)
{
    struct { uint64_t api, features, ioctls; } api = { 0xAA, 1 << 15 | 1 << 13, 0 };
    uint64_t region[3], page = (uint64_t)&api & ~4095ul;
    struct { uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, any, ret; } scan = {
        .size = sizeof scan, .start = page, .end = page + 4096, .vec = (uint64_t)region, .vec_len = 1, .any = 8, .ret = 8 };
    long fd = sys(SYS_userfaultfd, O_CLOEXEC | 1), r;
    if (fd < 0)
        return (int)fd;
    r = sys(SYS_ioctl, fd, _IOWR(0xAA, 0x3F, api), &api);
    sys_close((int)fd);
    if (r < 0)
        return (int)r;
    if ((fd = sys_openat(AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0)) < 0)
        return (int)fd;
    r = sys(SYS_ioctl, fd, _IOWR('f', 16, scan), &scan);
    sys_close((int)fd);
    return r < 0 ? (int)r : 0;
}

/* What a program that comes back here would be refused (memory/move.c): 0, MM_NO_PLACES, MM_NO_MOVE, or -errno.  vdso: the kernel's
 * own code in this process, moved in a child that does nothing else. */
int mm_refused_on_return(uint64_t vdso, uint64_t length)
{
    uint32_t size;
    int status = 0;
    if (sys(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0) < 0)
        return MM_NO_PLACES;
    uint64_t all = ~0ull, mask;            /* a signal to the whole group says nothing about moving */
    sys(SYS_rt_sigprocmask, SIG_BLOCK, &all, &mask, 8);
    long child = sys(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        long to = sys(SYS_mmap, 0, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        sys(SYS_exit_group, sys(SYS_mremap, vdso, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to);
    }
    long ended = child < 0 ? child : sys(SYS_wait4, child, &status, 0, 0);
    sys(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, 8);
    return ended < 0 ? (int)ended : status ? MM_NO_MOVE : 0;
}

/* -- words -- */

enum { FREE, SAID = 0x7fffffff };      /* else the number of the thread that is writing it */

/* 1: `metamori run` prints it within a second. */
int mm_tell_run(struct mm_area *a, const char *text)
{
    if (!a->head || !mm_run_is_watched(a))
        return 0;
    for (int i = 0; i < MM_WORDS; i++) {
        uint32_t *state = &a->head->words[i].state, free = FREE;
        if (__atomic_compare_exchange_n(state, &free, (uint32_t)sys_gettid(), 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            *stpncpy(a->head->words[i].text, text, MM_WORDS_BYTES - 1) = 0;
            __atomic_store_n(state, SAID, __ATOMIC_RELEASE);
            return 1;
        }
    }
    return 0;
}

/* By `metamori run`: takes one.  Where somebody was killed who wrote there is room again. */
int mm_words_said(struct mm_area *a, char *text)
{
    for (int i = 0; i < MM_WORDS; i++) {
        uint32_t *state = &a->head->words[i].state, now = __atomic_load_n(state, __ATOMIC_ACQUIRE);
        if (now != FREE && now != SAID && mm_owner_gone(now, state))
            __atomic_compare_exchange_n(state, &now, FREE, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        else if (now == SAID) {
            *stpncpy(text, a->head->words[i].text, MM_WORDS_BYTES - 1) = 0;
            __atomic_store_n(state, FREE, __ATOMIC_RELEASE);
            return 1;
        }
    }
    return 0;
}
