/* lock_order.c - which locks this thread holds, in the checked build.
 *
 * Only the thread itself looks.  A handler of the library may come between any two instructions, and takes and leaves locks of its
 * own: a place is claimed and left by one store.
 */
#include "base/base.h"

#ifdef MM_CHECKED

#define MOST 80                        /* all names' at once, and some */
#define KIND_SHIFT 56                  /* above any address */
#define LOCK_OF(place) ((place) & ((1ull << KIND_SHIFT) - 1))
#define KIND_OF(place) ((enum mm_lock_kind)((place) >> KIND_SHIFT))

static __thread uint64_t held[MOST] __attribute__((tls_model("initial-exec")));
static __thread int used __attribute__((tls_model("initial-exec")));        /* places from here on were never taken */

#define NAME(kind) #kind,
static const char *const names[] = { MM_LOCK_KINDS(NAME) };

void mm_lock_taking(const void *lock, enum mm_lock_kind kind)
{
    for (int i = 0; i < used; i++) {
        uint64_t place = __atomic_load_n(&held[i], __ATOMIC_RELAXED);
        if (!place || KIND_OF(place) < kind || (KIND_OF(place) == kind && LOCK_OF(place) < (uintptr_t)lock))
            continue;
        char text[160];
        snprintf(text, sizeof text, "the order of locks: it takes %s and holds %s", names[kind], names[KIND_OF(place)]);
        mm_assert_failed(text, __FILE__, __LINE__);
    }
}

void mm_lock_taken(const void *lock, enum mm_lock_kind kind)
{
    uint64_t nothing = 0, place = (uint64_t)kind << KIND_SHIFT | (uintptr_t)lock;
    int i = 0;
    while (i < MOST && !__atomic_compare_exchange_n(&held[i], &nothing, place, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        nothing = 0, i++;
    MM_ASSERT(i < MOST);
    if (used <= i)
        used = i + 1;
}

void mm_lock_left(const void *lock)
{
    int i = 0;
    while (i < used && LOCK_OF(__atomic_load_n(&held[i], __ATOMIC_RELAXED)) != (uintptr_t)lock)
        i++;
    MM_ASSERT(i < used);
    __atomic_store_n(&held[i], 0, __ATOMIC_RELAXED);
}

void mm_locks_forgotten(void) { memset(held, 0, sizeof held); }

int mm_locks_held(enum mm_lock_kind from, enum mm_lock_kind to)
{
    int n = 0;
    for (int i = 0; i < used; i++) {
        uint64_t place = __atomic_load_n(&held[i], __ATOMIC_RELAXED);
        n += place && KIND_OF(place) >= from && KIND_OF(place) <= to;
    }
    return n;
}
#else
typedef int mm_no_order_to_check;      /* a file of nothing is not C */
#endif
