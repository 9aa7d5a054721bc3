/* threads_back.c - the threads of a process that comes back, each with what the kernel kept for it.
 *
 * They get the numbers that they had where those are free and this user may choose them: the C library's locks that die with their
 * owner, or lend it their priority, show them to the kernel.  Else the wrappers translate (wrap_pid.c).
 */
#include "memory/image_engine.h"

#include <sys/prctl.h>
#include <sys/resource.h>

void mm_rename_thread(uint32_t known, uint32_t real, uint64_t fs)
{
    struct mm_engine *e = ENGINE;
    e->renamed[e->renamed_count++] = (struct mm_renamed){ known, real, fs };
}

uint32_t mm_real_tid(uint32_t known)
{
    const struct mm_engine *e = ENGINE;
    for (uint32_t i = 0; i < e->renamed_count; i++)
        if (e->renamed[i].known == known)
            return e->renamed[i].real;
    return 0;
}

static void rseq_back(const struct mm_thread *t)
{
    const struct mm_of_thread *own = &mm_of_thread;
    if (own->rseq && sys(SYS_rseq, own->rseq, own->rseq_length, 0, own->rseq_signature) < 0)
        mm_cannot_come_back("the kernel does not take its restartable sequences (rseq)", "");
    else if (!own->rseq && ENGINE->image.rseq_size)
        sys(SYS_rseq, t->fs + ENGINE->image.rseq_offset, 32, 0, 0x53053053);
}

void mm_thread_state_back(const struct mm_thread *t)
{
    sys(SYS_set_robust_list, t->robust, t->robust_length);
    sys(SYS_prctl, 15 /* PR_SET_NAME */, t->name);
    if (t->gs)
        sys(SYS_arch_prctl, 0x1001, t->gs);
    rseq_back(t);
    for (int i = 1; i <= MM_SIGNALS; i++)
        if (t->pending >> (i - 1) & 1 && i != MM_MEMORY_SIGNAL)
            mm_signal_back(&ENGINE->image, i, t->tid);
    mm_tid = (uint32_t)sys_gettid();   /* it may come back amid taking a lock, with its number as before */
    mm_known_tid = t->tid;
}

static long parent;

/* When all are there. */
void mm_note_parent(void) { parent = sys(SYS_getppid); }

/* As far as this user may, a lower nice value, say, can be refused, and as far as the processors are there. */
static void schedule(const struct mm_thread *t)
{
    int priority = t->scheduling >> 16 & 127, policy = t->scheduling >> 8 & 7;
    sys(SYS_sched_setscheduler, 0, policy | (t->scheduling & MM_SET_RESET ? SCHED_RESET_ON_FORK : 0), &priority);
    sys(SYS_setpriority, PRIO_PROCESS, 0, (long)(t->scheduling & 255) - 20);
    if (mm_of_thread.io_priority >> 13)    /* a class of its own */
        sys(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, 0, mm_of_thread.io_priority);
    for (int i = 0; i < MM_PROCESSORS; i++)
        if (t->processors[i]) {
            sys(SYS_sched_setaffinity, 0, sizeof t->processors, t->processors);
            break;
        }
}

/* When all are back: before, this would take part in the restart itself, and threads would have it of the one that makes them. */
static void set_last(const struct mm_thread *t)
{
    uint32_t death = t->scheduling >> MM_SET_DEATH & 127;
    if (!(t->scheduling >> 31))
        return;
    schedule(t);
    sys(SYS_prctl, PR_SET_CHILD_SUBREAPER, (t->scheduling & MM_SET_REAPER) != 0, 0, 0, 0);
    sys(SYS_prctl, PR_SET_THP_DISABLE, (t->scheduling & MM_SET_NO_THP) != 0, 0, 0, 0);
    if (t->scheduling & MM_SET_NO_PRIVILEGES)
        sys(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    mm_settings_back();
    sys(SYS_prctl, PR_SET_PDEATHSIG, death, 0, 0, 0);
    if (death && sys(SYS_getppid) != parent)       /* it has ended since */
        sys(SYS_tgkill, sys_getpid(), sys_gettid(), death);
}

static void stand_while(uint32_t *word, uint32_t value)
{
    __atomic_add_fetch(&ENGINE->parked, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value)
        sys_futex_wait(word, value, 1000000);
}

static void await_parked(uint32_t count)
{
    while (__atomic_load_n(&ENGINE->parked, __ATOMIC_ACQUIRE) != count)
        sys_pause_us(20);
}

static void thread_back(void *argument)
{
    const struct mm_thread *t = argument;
    struct mm_engine *e = ENGINE;
    uint32_t stop = __atomic_load_n(&e->stop, __ATOMIC_ACQUIRE);
    mm_thread_state_back(t);
    stand_while(&e->all_ready, 0);
    set_last(t);
    /* until all are there, known by their numbers; a process that was stopped is so before any runs */
    stand_while(&e->stop, stop);
    mm_jump(t->registers);
}

#define SAME_PROCESS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS \
                      | CLONE_CHILD_CLEARTID)

/* With the kernel's number that it had. */
static long thread_as(struct mm_thread *t, char *stack)
{
    uint64_t top = (uint64_t)stack_top(stack, THREAD_STACK), number = t->tid;
    uint64_t how[] = { SAME_PROCESS, 0, t->clear_tid, 0, 0, (uint64_t)stack, top - (uint64_t)stack, t->fs, (uint64_t)&number, 1 };
    return mm_memory_head->tree.translates ? -EPERM : mm_clone3_thread(how, sizeof how, thread_back, t);
}

/* All of them, but for the main thread; how many.  They stand. */
uint32_t mm_threads_back(const struct mm_thread *main_thread)
{
    struct mm_engine *e = ENGINE;
    uint32_t others = (uint32_t)e->image.threads - (main_thread != 0);
    e->within = others + 1;                /* where none is the main thread, this one ends */
    e->asked = (uint32_t)e->image.threads - 1;
    e->stop |= 1;
    for (uint64_t i = 0; i < e->image.threads; i++) {
        struct mm_thread *t = &e->thread[i];
        if (t == main_thread)
            continue;
        long tid = thread_as(t, e->thread_stack[i]);
        if (tid < 0)                       /* that number is taken, or we may not choose */
            tid = mm_clone_thread(SAME_PROCESS, stack_top(e->thread_stack[i], THREAD_STACK), thread_back,
                                  (void *)t->clear_tid, (void *)t->fs, t);
        if (tid < 0)
            mm_cannot_come_back("a thread cannot be made", "");
        mm_rename_thread(t->tid, (uint32_t)tid, t->fs);
    }
    await_parked(others);
    return others;
}

/* Nothing can fail any more.  Back when all have what is set last. */
void mm_threads_set(const struct mm_thread *main_thread, uint32_t others)
{
    if (main_thread)
        set_last(main_thread);
    __atomic_store_n(&ENGINE->all_ready, 1, __ATOMIC_RELEASE);
    sys_futex_wake(&ENGINE->all_ready, 1 << 30);
    await_parked(2 * others);
}
