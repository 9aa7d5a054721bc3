/* known_numbers.c - numbers as the run's programs know them, and as the kernel does: of processes; of shared memory, semaphores and
 * message queues of System V; and message queues of POSIX by their names.
 *
 * Where processes came back with their memory the kernel has given them new numbers, and their programs know the old ones.  The list
 * in the run area says which is which; it never changes while the run lives.  A new process to which the kernel gives a number that
 * programs know as another's is known by one that no kernel gives.
 *
 * The others belong to no descriptor and no process: which of them a run uses is known only from its calls (calls/wrap_sysv.c), and
 * they were made anew.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

#include <sched.h>
#include <string.h>

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

static uint32_t kind_now(const struct mm_sysv *o) { return __atomic_load_n(&o->kind, __ATOMIC_ACQUIRE); }

int32_t mm_sysv_known(struct mm_area *a, uint32_t kind, int32_t real)
{
    const struct mm_sysv *o = a->head->tree.sysv;
    for (uint32_t i = 0; i < MM_SYSV && o[i].taken; i++)
        if (kind_now(&o[i]) == kind && o[i].real == real)
            return o[i].known;
    return real;
}

/* -1: the program knows none of this number; the kernel may have one, which is known by another. */
int32_t mm_sysv_real(struct mm_area *a, uint32_t kind, int32_t known)
{
    const struct mm_sysv *o = a->head->tree.sysv;
    int other = 0;
    for (uint32_t i = 0; i < MM_SYSV && o[i].taken; i++) {
        if (kind_now(&o[i]) == kind && o[i].known == known)
            return o[i].real;
        other |= kind_now(&o[i]) == kind && o[i].real == known;
    }
    return other ? -1 : known;
}

static int knows(struct mm_area *a, uint32_t kind, int32_t number)
{
    const struct mm_sysv *o = a->head->tree.sysv;
    for (uint32_t i = 0; i < MM_SYSV && o[i].taken; i++)
        if (kind_now(&o[i]) == kind && o[i].known == number)
            return 1;
    return 0;
}

/* The run uses this one.  Two may note it at once, alike.  NULL: there is no room. */
struct mm_sysv *mm_sysv_note(struct mm_area *a, uint32_t kind, int32_t real)
{
    struct mm_sysv *o = a->head->tree.sysv;
    for (uint32_t i = 0; i < MM_SYSV && o[i].taken; i++)
        if (kind_now(&o[i]) == kind && o[i].real == real)
            return &o[i];
    int32_t known = real;
    while (knows(a, kind, known))       /* an object that was made anew is known by it */
        known = (int32_t)(((uint32_t)known + 32768) & 0x7fffffff);
    for (uint32_t i = 0; i < MM_SYSV; i++) {
        uint32_t none = 0;
        if (o[i].kind || (o[i].taken & 1))
            continue;
        none = o[i].taken;
        if (!__atomic_compare_exchange_n(&o[i].taken, &none, none + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            continue;
        o[i].known = known, o[i].real = real, o[i].undo = 0;
        __atomic_store_n(&o[i].kind, kind, __ATOMIC_RELEASE);
        return &o[i];
    }
    __atomic_store_n(&a->head->tree.sysv_lost, 1, __ATOMIC_RELEASE);
    return 0;
}

/* It was removed. */
void mm_sysv_forget(struct mm_area *a, uint32_t kind, int32_t real)
{
    struct mm_sysv *o = a->head->tree.sysv;
    for (uint32_t i = 0; i < MM_SYSV && o[i].taken; i++) {
        uint32_t was = kind;
        if (kind_now(&o[i]) == kind && o[i].real == real
            && __atomic_compare_exchange_n(&o[i].kind, &was, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            __atomic_add_fetch(&o[i].taken, 1, __ATOMIC_ACQ_REL);
    }
}

/* -- message queues of POSIX: one that nobody has open is known only from here.  What is there too long is harmless: whoever reads
 * it compares the inode of what has the name now. */

static uint32_t state_now(const struct mm_queue *q) { return __atomic_load_n(&q->state, __ATOMIC_ACQUIRE); }

/* name "": not known.  Two may note it at once, alike.  NULL: there is no room. */
struct mm_queue *mm_queue_note(struct mm_area *a, uint64_t inode, const char *name)
{
    struct mm_tree *t = &a->head->tree;
    for (struct mm_queue *q = t->queue; q < t->queue + MM_QUEUES; q++)
        if ((state_now(q) & 3) == 2 && q->inode == inode)
            return q;
    for (struct mm_queue *q = t->queue; q < t->queue + MM_QUEUES; q++) {
        uint32_t now = state_now(q);
        if ((now & 3) || !__atomic_compare_exchange_n(&q->state, &now, now + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            continue;
        q->inode = inode, q->waits = 0, q->value = 0;
        strncpy(q->name, name, sizeof q->name - 1);
        uint32_t place = (uint32_t)(q - t->queue) + 1, used = __atomic_load_n(&t->queues, __ATOMIC_ACQUIRE);
        while (used < place
               && !__atomic_compare_exchange_n(&t->queues, &used, place, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            ;
        __atomic_store_n(&q->state, now + 2, __ATOMIC_RELEASE);
        return q;
    }
    __atomic_store_n(&t->queues_lost, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Frees the place, unless another queue has it. */
void mm_queue_forget(struct mm_area *a, uint32_t place, uint32_t state)
{
    __atomic_compare_exchange_n(&a->head->tree.queue[place].state, &state, state + 2, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
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
