/* lock.c - the locks of the run area, and those of a process: a word that holds the owner's thread number.
 *
 * Invariants: only the owner writes 0; what a lock guards is true at every instruction, so a lock whose owner is dead
 * (lock_owner.c) is taken over as it is.  In which order they are taken: base/lock_order.h.
 *
 * Whoever comes by takes a free lock, which is fast, and unfair: a thread that takes it again and again is back before the one it
 * woke runs, and a name that one process renames all the time was never another's.  So who has waited for STARVED_NS says so in
 * the word, and the owner leaves the lock to such as have: the rest wait.  Those that come while one is kept for nobody, since it
 * was killed, have waited as long when they may take it.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

#include <errno.h>

/* init.c clears it in a forked child */
__thread uint32_t mm_tid __attribute__((tls_model("initial-exec")));

#define STARVED_NS 2000000
#define SPINS 256                      /* about as long as to sleep and be woken takes, several times as long as a write of a block */
#define LOOK_EACH 100                  /* timeouts, a second: whether the number has come round is dearer to find out */

static int owner_dead(uint32_t word, const uint32_t *lock, int timeouts)
{
    uint32_t tid = word & MM_OWNER;
    return timeouts % LOOK_EACH != 1 ? sys(SYS_tkill, tid, 0) == -ESRCH : mm_owner_gone(tid, lock);
}

/* 0; 1: it was taken over from one that is dead; -ETIMEDOUT */
int mm_lock_timed(uint32_t *lock, long timeout_ms)
{
    uint32_t me = mm_tid ? mm_tid : (mm_tid = (uint32_t)sys_gettid()), starved = 0;
    uint64_t since = 0;
    for (int spins = 0, timeouts = 0;; spins++) {
        uint32_t seen = spins ? __atomic_load_n(lock, __ATOMIC_RELAXED) : 0;   /* a look first would be another page fault */
        if (!seen || (starved && !(seen & MM_OWNER))) {
            if (__atomic_compare_exchange_n(lock, &seen, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
                return 0;
            continue;
        }
        if (spins < SPINS) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
            continue;
        }
        MM_ALWAYS((seen & MM_OWNER) != (me & MM_OWNER));         /* it would wait for itself */
        uint32_t waited = seen | MM_WAITED | starved;
        if (seen != waited && !__atomic_compare_exchange_n(lock, &seen, waited, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            continue;
        me |= MM_WAITED;               /* others may wait, too: who has waited wakes the next one */
        since = since ? since : sys_now_ns();
        long woken = sys_futex_wait(lock, waited, 10000);
        starved = sys_now_ns() - since > STARVED_NS ? MM_STARVED : 0;
        if (woken != -ETIMEDOUT)
            continue;
        if (waited & MM_OWNER && owner_dead(waited, lock, ++timeouts)
            && __atomic_compare_exchange_n(lock, &waited, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return 1;
        if (timeout_ms >= 0 && (timeout_ms -= 10) <= 0)
            return -ETIMEDOUT;
    }
}

/* A thread that executed a new program has its leader's number from then on, and what the leader held. */
void mm_release_if(uint32_t *lock, uint32_t tid)
{
    mm_tid = tid;                      /* the caller's own */
    if ((__atomic_load_n(lock, __ATOMIC_ACQUIRE) & MM_OWNER) == tid)
        mm_lock_free(lock);
}

int mm_session_lock(struct mm_area *a, int timeout_ms)
{
    for (;; sys_pause_us(10000)) {
        mm_lock_taking(&a->head->session_lock, MM_LOCK_SESSION);
        int r = mm_lock_timed(&a->head->session_lock, timeout_ms);
        if (r < 0)
            return r;
        mm_lock_taken(&a->head->session_lock, MM_LOCK_SESSION);
        if (__builtin_expect(!mm_half_restored(a), 1))
            return 0;
        mm_session_unlock(a);
        if (timeout_ms >= 0 && (timeout_ms -= 10) <= 0)
            return -ETIMEDOUT;
    }
}

void mm_session_unlock(struct mm_area *a) { mm_unlock(&a->head->session_lock); }
