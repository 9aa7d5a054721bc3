/* stop_threads.c - the leader has all other threads park; each notes where it stands.
 *
 * A thread stands in the signal handler: what it was doing is in the frame that the kernel put on its stack, and the way
 * back is the kernel's own, also in another process.  Blocked signals cannot keep a thread from it: the C library lets
 * nobody block this one.
 */
#include "memory/image_engine.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <ucontext.h>

/* Only a choice of the program's own: where it goes on it is given others by a batch system, or by hand. */
static void note_processors(struct mm_thread *t)
{
    uint64_t given[MM_PROCESSORS] = { 0 };
    own_fill(t->processors, 0, sizeof t->processors);
    long n = sys(SYS_sched_getaffinity, mm_memory_head->supervisor, sizeof given, given);
    if (n <= 0 || sys(SYS_sched_getaffinity, 0, sizeof t->processors, t->processors) != n)
        own_fill(t->processors, 0, sizeof t->processors);
    for (int i = 0; i < MM_PROCESSORS; i++)
        if (given[i] != t->processors[i])
            return;
    own_fill(t->processors, 0, sizeof t->processors);
}

void mm_note_thread(struct mm_thread *t)
{
    sys(SYS_arch_prctl, 0x1003, &t->fs);
    t->tid = mm_program_tid((uint32_t)sys_gettid(), t->fs);
    sys(SYS_arch_prctl, 0x1004, &t->gs);
    sys(SYS_get_robust_list, 0, &t->robust, &t->robust_length);
    sys(SYS_prctl, 40 /* PR_GET_TID_ADDRESS */, &t->clear_tid);
    sys(SYS_prctl, 16 /* PR_GET_NAME */, t->name);
    int priority = 0;
    sys(SYS_sched_getparam, 0, &priority);
    uint32_t policy = (uint32_t)sys(SYS_sched_getscheduler, 0);
    /* the kernel's own answer is 20 - nice */
    t->scheduling = 1u << 31 | (uint32_t)priority << 16 | (policy & 7) << 8 | (policy & SCHED_RESET_ON_FORK ? MM_SET_RESET : 0)
                  | (uint32_t)(40 - sys(SYS_getpriority, PRIO_PROCESS, 0));
    int io_priority = (int)sys(SYS_ioprio_get, 1 /* IOPRIO_WHO_PROCESS */, 0);
    if (io_priority != mm_of_thread.io_priority && io_priority >= 0)   /* else this page was not written */
        mm_of_thread.io_priority = io_priority;
    int death = 0, reaper = 0;
    sys(SYS_prctl, PR_GET_PDEATHSIG, &death, 0, 0, 0);
    sys(SYS_prctl, PR_GET_CHILD_SUBREAPER, &reaper, 0, 0, 0);
    t->scheduling |= (uint32_t)death << MM_SET_DEATH | (reaper ? MM_SET_REAPER : 0)
                   | (sys(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? MM_SET_NO_PRIVILEGES : 0)
                   | (sys(SYS_prctl, PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 ? MM_SET_NO_THP : 0);
    note_processors(t);
    mm_settings_note();
    t->pending = 0;                        /* until all stand (kernel_state.c) */
}

/* Of a process ("/proc/") or a thread ("/proc/self/task/"), as /proc says it; 0: nobody knows. */
int mm_state_letter(const char *folder, uint32_t id)
{
    char path[64], text[512], number[24], *digits = own_decimal(number + 23, id);
    uint64_t n0 = own_length(folder);
    number[23] = 0;
    own_copy(path, folder, n0);
    own_copy(path + n0, digits, own_length(digits) + 1);
    own_copy(path + n0 + own_length(digits), "/stat", 6);
    long fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return fd == -ENOENT || fd == -ESRCH ? 'X' : 0;
    long n = sys(SYS_read, fd, text, sizeof text - 1), last = 0;
    sys_close((int)fd);
    for (long i = 0; i < n; i++)
        if (text[i] == ')')
            last = i;
    return n == -ESRCH ? 'X' : last ? text[last + 2] : 0;
}

/* Whether it has ended; a zombie has: the main thread of a process whose others go on, or whoever asked for an image. */
int mm_ended(const char *folder, uint32_t id)
{
    int letter = mm_state_letter(folder, id);
    return letter == 'Z' || letter == 'X';
}

/* The same of whoever asked, without a descriptor, not even for a moment: it looks at ours, and would take it for one of the
 * program's.  A process that has ended, reaped or not, has no program. */
int mm_asker_ended(uint32_t pid)
{
    char path[48] = "/proc/", one, number[24], *digits = own_decimal(number + 23, pid);
    uint64_t n = own_length(digits);
    number[23] = 0;
    own_copy(path + 6, digits, n);
    own_copy(path + 6 + n, "/exe", 5);
    long r = sys(SYS_readlinkat, AT_FDCWD, path, &one, 1);
    return r == -ENOENT || r == -ESRCH;
}

static long send_stop(uint32_t tid)
{
    siginfo_t info;
    own_fill(&info, 0, sizeof info);
    info.si_signo = MM_MEMORY_SIGNAL;
    info.si_code = SI_QUEUE;
    info.si_value.sival_ptr = (void *)((uint64_t)MM_MEMORY_STOP << 32 | ENGINE->stop);
    return sys(SYS_rt_tgsigqueueinfo, sys_getpid(), tid, MM_MEMORY_SIGNAL, &info);
}

static long ask_thread(uint32_t tid, uint32_t slot)
{
    struct mm_engine *e = ENGINE;
    e->thread[slot].tid = 0;               /* until it stands there: it may end before */
    e->signalled[slot] = tid;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return send_stop(tid);
}

#define ASK_AGAIN_NS 20000000
/* Those that do not stand: see handler.c. */
static void ask_again(uint32_t asked)
{
    struct mm_engine *e = ENGINE;
    for (uint32_t i = 1; i <= asked; i++)
        if (e->signalled[i] && !__atomic_load_n(&e->thread[i].tid, __ATOMIC_RELAXED))
            send_stop(e->signalled[i]);
}

/* How many threads there are beside this one; -errno.  Known for a sixth of what a look at them takes, and right: one that ends hides
 * those behind it from a look.  The main thread counts when it has ended, too, and every other until it is gone. */
static long others(void)
{
    struct stat st;
    long r = sys(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &st, 0);
    return r < 0 ? r : (long)st.st_nlink - 3;
}

/* Some may have ended before the signal came; others may have their numbers soon. */
static void forget_ended(uint32_t asked)
{
    struct mm_engine *e = ENGINE;
    for (uint32_t i = 1; i <= asked; i++)
        if (e->signalled[i] && !e->thread[i].tid && sys(SYS_tgkill, sys_getpid(), e->signalled[i], 0) == -ESRCH)
            e->signalled[i] = 0;
}

static uint32_t free_slot(uint32_t asked)
{
    uint32_t slot = 1;
    while (slot <= asked && ENGINE->signalled[slot])
        slot++;
    return slot;
}

/* One look at the threads: asks those that were not; 0, or -errno. */
static int ask_threads(uint32_t *asked)
{
    struct mm_engine *e = ENGINE;
    char entries[8192];
    uint32_t me = (uint32_t)sys_gettid();
    long n, r = 0, fd = sys_openat(AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return (int)fd;
    forget_ended(*asked);
    while ((n = sys(SYS_getdents64, fd, entries, sizeof entries)) > 0)
        for (long at = 0; at < n; at += *(unsigned short *)(entries + at + 16)) {
            const char *name = entries + at + 19;
            uint32_t tid = (uint32_t)own_number(&name, 10), slot = 0;
            if (!tid || tid == me || (tid == e->main_gone))
                continue;
            for (uint32_t i = 1; i <= *asked && !slot; i++)
                slot = e->signalled[i] == tid ? i : 0;
            if (tid == (uint32_t)sys_getpid() && (!slot || !e->thread[slot].tid) && mm_ended("/proc/self/task/", tid))
                e->main_gone = tid;        /* maybe after it was asked */
            else if (slot)
                continue;
            else if ((slot = free_slot(*asked)) == THREADS)     /* those that just end leave theirs */
                r = __atomic_load_n(&e->parked, __ATOMIC_ACQUIRE) >= THREADS - 1 ? -E2BIG : r;
            else if (ask_thread(tid, slot) < 0)    /* a signal that this user has no room for is sent at the next look */
                e->signalled[slot] = 0;
            else if (slot > *asked)
                *asked = slot;
        }
    sys_close((int)fd);
    return (int)(r ? r : n);
}

/* Every other thread stands in park, or -errno and all of them run. */
int mm_stop_others(void)
{
    struct mm_engine *e = ENGINE;
    uint32_t asked = 0;
    long least = 0;                        /* so few were left, since: */
    uint64_t since = own_now(), again = since + ASK_AGAIN_NS;
    own_fill(e->signalled, 0, sizeof e->signalled);
    e->main_gone = e->parked = 0;
    __atomic_add_fetch(&e->stop, 1, __ATOMIC_SEQ_CST);
    for (long pause = 5;; pause = pause < 1000 ? pause * 2 : pause) {
        /* who is parked stays so: where there are no more afterwards, nobody is left who could start another */
        uint32_t parked = __atomic_load_n(&e->parked, __ATOMIC_ACQUIRE);
        long left = others() - parked - (e->main_gone != 0);
        if (left == 0)
            break;
        if (left < least || !least)
            least = left, since = own_now(), again = since + ASK_AGAIN_NS;
        if (own_now() > again)
            ask_again(asked), again = own_now() + ASK_AGAIN_NS;
        int r = ask_threads(&asked);
        int given_up = __atomic_load_n(&mm_my_memory->state, __ATOMIC_ACQUIRE) == MM_MEMORY_IDLE;
        if (r < 0 || given_up || own_now() - since > MM_PATIENCE_NS) {
            mm_release_others();
            return r < 0 ? r : -EAGAIN;
        }
        sys_pause_us(pause);
    }
    e->asked = asked;
    return 0;
}

void mm_await_no_stop(void)
{
    struct mm_engine *e = ENGINE;
    for (uint32_t stop; (stop = __atomic_load_n(&e->stop, __ATOMIC_ACQUIRE)) & 1 && e->pid == (uint32_t)sys_getpid();)
        sys_futex_wait(&e->stop, stop, 1000000);
}

void mm_release_others(void)
{
    struct mm_engine *e = ENGINE;
    __atomic_add_fetch(&e->stop, 1, __ATOMIC_ACQ_REL);
    sys_futex_wake(&e->stop, 1 << 30);
}
