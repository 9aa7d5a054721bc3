/* together.c - the processes of a run come back together: one after the other where they share something, and none runs before all
 * are there.  If one cannot come back, none does.
 */
#include "memory/image_engine.h"

#include <sys/wait.h>

static struct mm_tree *tree(void) { return &mm_memory_head->tree; }

/* Which of those that come back this process is; NULL: none. */
struct mm_member *mm_this_member(void)
{
    uint32_t me = (uint32_t)sys_getpid();
    for (uint32_t i = 0; i < tree()->processes; i++)
        if (tree()->member[i].real == me)
            return &tree()->member[i];
    return 0;
}

void mm_all_lost(void)
{
    if (!mm_memory_head || !tree()->processes)
        return;
    __atomic_store_n(&tree()->lost, 1, __ATOMIC_SEQ_CST);
    sys_futex_wake(&tree()->back, 1 << 30);
    sys_futex_wake(&tree()->opened, 1 << 30);
    sys_futex_wake(&tree()->ready, 1 << 30);
}

void mm_cannot_come_back(const char *what, const char *more)
{
    own_say("the program cannot come back: ", what, more);
    mm_all_lost();
    sys(SYS_exit_group, 125);
    __builtin_unreachable();
}

/* The one whose turn is before this one's; before the first comes the last. */
static struct mm_member *one_before(void)
{
    uint32_t me = (uint32_t)(mm_this_member() - tree()->member);
    return &tree()->member[me ? me - 1 : tree()->processes - 1];
}

/* Somebody is not coming: it said so, or was killed.  Each looks after one other only, so of those that are missing one is seen.
 * One that has run and ended since has changed the word before. */
static int is_lost(const uint32_t *word, uint32_t now)
{
    uint32_t other = one_before()->real;
    if (!tree()->lost && other && mm_ended("/proc/", other) && __atomic_load_n(word, __ATOMIC_ACQUIRE) == now)
        mm_all_lost();
    return tree()->lost != 0;
}

static void await(uint32_t *word, uint32_t now)
{
    if (tree()->lost || (sys_futex_wait(word, now, 100000) == -ETIMEDOUT && is_lost(word, now)))
        sys(SYS_exit_group, 125);
}

/* Of a description that several have, the second finds the first one's. */
void mm_await_turn(void)
{
    struct mm_member *before = one_before();
    int is_first = mm_this_member() == tree()->member;
    while (!is_first && !__atomic_load_n(&before->had_turn, __ATOMIC_ACQUIRE))
        await(&before->had_turn, 0);
}

static void mark(uint32_t *word)
{
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    sys_futex_wake(word, 1 << 30);
}

void mm_end_turn(void) { mark(&mm_this_member()->had_turn); }

/* count: of those that are as far as this. */
static void await_each(uint32_t *count)
{
    uint32_t now = __atomic_add_fetch(count, 1, __ATOMIC_ACQ_REL);
    if (now == tree()->processes)
        sys_futex_wake(count, 1 << 30);
    while ((now = __atomic_load_n(count, __ATOMIC_ACQUIRE)) < tree()->processes)
        await(count, now);
}

void mm_await_all(void) { await_each(&tree()->back); }

/* To run: whatever can fail has been done by all, and signals that waited are there before whoever runs sends others. */
void mm_await_ready(void) { await_each(&tree()->ready); }

void mm_await_opened(void)
{
    if (tree()->watching)
        await_each(&tree()->opened);
}

/* -- those that job control had stopped ------------------------------------------------------------ */

struct action { uint64_t handler, flags, restorer, mask; };

#define BIT(signal) (1ul << ((signal) - 1))

static void heard(siginfo_t *info, uint64_t signals, long us)
{
    struct timespec time = { us / 1000000, us % 1000000 * 1000 };
    info->si_signo = 0;
    sys(SYS_rt_sigtimedwait, &signals, info, &time, 8);
}

/* A child of this process: one after the other, so that the signal of each is heard and none is left over. */
static void let_stop(struct mm_member *child)
{
    siginfo_t info;
    uint32_t real = child->real;
    int stood = 0;                         /* when the last one was waited for; another's signal can stand for its own */
    mark(&child->may_stop);
    do {
        int letter = mm_state_letter("/proc/", real);
        if (stood || letter == 'X' || letter == 'Z')
            break;
        heard(&info, BIT(SIGCHLD), 100000);
        stood = letter == 'T' && !info.si_signo;
    } while (!info.si_signo || info.si_code != CLD_STOPPED || (uint32_t)info.si_pid != real);
    if (!child->unseen)
        sys(SYS_waitid, P_PID, real, &info, WSTOPPED | WNOHANG, 0);
    mark(&child->stood);
}

/* The program's parent heard of it then, and hears nothing now. */
void mm_let_children_stop(const struct mm_memory_image *image)
{
    const struct mm_member *this = mm_this_member();
    struct action now, listening = { (uint64_t)heard, 0x04000000, (uint64_t)mm_return_from_signal, 0 };
    int any = 0;
    for (uint32_t i = 0; this && i < tree()->processes; i++)
        any |= tree()->member[i].stops && tree()->member[i].parent == this->known;
    if (!this || !any)
        return;
    sys(SYS_rt_sigaction, SIGCHLD, &listening, &now, 8);       /* blocked: it never runs */
    for (uint32_t i = 0; i < tree()->processes; i++)
        if (tree()->member[i].stops && tree()->member[i].parent == this->known)
            let_stop(&tree()->member[i]);
    sys(SYS_rt_sigaction, SIGCHLD, &now, 0, 8);
    siginfo_t info;
    heard(&info, BIT(SIGCHLD), 0);
    if (image->pending & BIT(SIGCHLD))
        sys(SYS_kill, sys_getpid(), SIGCHLD);
}

/* Nobody runs before they stand: it might continue one that has not stopped yet. */
void mm_await_stopped(void)
{
    for (uint32_t i = 0; i < tree()->processes; i++) {
        struct mm_member *other = &tree()->member[i];
        while (other->stops && other != mm_this_member() && !__atomic_load_n(&other->stood, __ATOMIC_ACQUIRE)) {
            int letter = other->parent ? 0 : mm_state_letter("/proc/", other->real);
            if (letter == 'T' || mm_ended("/proc/", other->real))
                mark(&other->stood);
            else
                sys_futex_wait(&other->stood, 0, 2000);
        }
    }
}
