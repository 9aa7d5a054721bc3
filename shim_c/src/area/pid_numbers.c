/* pid_numbers.c - process numbers as the run's programs know them, and as the kernel does.
 *
 * Where processes came back with their memory the kernel has given them new numbers, and their programs know the old ones.  The list
 * in the run area says which is which; it never changes while the run lives.  A new process to which the kernel gives a number that
 * programs know as another's is known by one that no kernel gives.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

#include <sched.h>

static int is_known(const struct mm_tree *t, uint32_t number)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (t->member[i].known == number)
            return 1;
    return 0;
}

uint32_t mm_known_number(struct mm_area *a, uint32_t real)
{
    const struct mm_tree *t = &a->head->tree;
    uint32_t known = real;
    for (uint32_t i = 0; i < t->count; i++)
        if (__atomic_load_n(&t->member[i].real, __ATOMIC_ACQUIRE) == real)
            return t->member[i].known;
    while (is_known(t, known))
        known += MM_NEVER_A_PID;
    return known;
}

uint32_t mm_real_number(struct mm_area *a, uint32_t known)
{
    const struct mm_tree *t = &a->head->tree;
    for (uint32_t i = 0; i < t->count; i++)
        if (t->member[i].known == known) {
            uint32_t real = __atomic_load_n(&t->member[i].real, __ATOMIC_ACQUIRE);
            return real ? real : known;
        }
    return t->count ? known % MM_NEVER_A_PID : known;
}

#define CLONE3 435
/* A fork to which the kernel gives this number; -errno: it is taken, or this user may not choose.  Only where there is one thread:
 * nobody holds a lock of the C library, which is told of the new number as by its own fork. */
long mm_fork_as(uint32_t number)
{
    uint64_t note = 0, wanted = number;
    sys(SYS_prctl, 40 /* PR_GET_TID_ADDRESS */, &note);
    uint64_t how[] = { CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, 0, note, 0, SIGCHLD, 0, 0, 0, (uint64_t)&wanted, 1 };
    return note ? sys(CLONE3, how, sizeof how) : -ENOSYS;
}
