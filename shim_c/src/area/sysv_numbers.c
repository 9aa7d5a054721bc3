/* sysv_numbers.c - shared memory, semaphores and message queues of System V as the run's programs know them, and as the kernel does.
 *
 * They belong to no descriptor and no process: which of them a run uses is known only from its calls (calls/wrap_sysv.c).  Where
 * processes came back with their memory, the objects were made anew and have other numbers than their programs know.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

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
