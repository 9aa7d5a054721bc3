/* together.c - the processes of a run come back together: one after the other where they share something, and none runs before all
 * are there.  If one cannot come back, none does.
 */
#include "memory/engine.h"

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
    sys_futex_wake(&tree()->turn, 1 << 30);
    sys_futex_wake(&tree()->back, 1 << 30);
}

void mm_cannot_come_back(const char *what, const char *more)
{
    own_say("the program cannot come back: ", what, more);
    mm_all_lost();
    sys(SYS_exit_group, 125);
    __builtin_unreachable();
}

/* Somebody is not coming: it said so, or was killed. */
static int is_lost(void)
{
    for (uint32_t i = 0; !tree()->lost && i < tree()->processes; i++)
        if (tree()->member[i].real && mm_ended("/proc/", tree()->member[i].real))
            mm_all_lost();
    return tree()->lost != 0;
}

static void await(uint32_t *word, uint32_t now)
{
    if (tree()->lost || (sys_futex_wait(word, now, 100000) == -ETIMEDOUT && is_lost()))
        sys(SYS_exit_group, 125);
}

/* Of a description that several have, the second finds the first one's. */
void mm_await_turn(void)
{
    uint32_t me = (uint32_t)(mm_this_member() - tree()->member), turn;
    while ((turn = __atomic_load_n(&tree()->turn, __ATOMIC_ACQUIRE)) != me)
        await(&tree()->turn, turn);
}

void mm_end_turn(void)
{
    __atomic_add_fetch(&tree()->turn, 1, __ATOMIC_ACQ_REL);
    sys_futex_wake(&tree()->turn, 1 << 30);
}

void mm_await_all(void)
{
    uint32_t back = __atomic_add_fetch(&tree()->back, 1, __ATOMIC_ACQ_REL);
    sys_futex_wake(&tree()->back, 1 << 30);
    while ((back = __atomic_load_n(&tree()->back, __ATOMIC_ACQUIRE)) < tree()->processes)
        await(&tree()->back, back);
}
