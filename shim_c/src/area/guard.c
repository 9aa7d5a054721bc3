/* guard.c - a thread in a counted call: a checkpoint waits for it, and its signal handlers wait for it (wrap_signal.c). */
#include "area/area.h"

__thread union mm_call mm_call __attribute__((tls_model("initial-exec")));
__thread int mm_holding __attribute__((tls_model("initial-exec")));
__thread uint64_t mm_deferred __attribute__((tls_model("initial-exec")));
MM_PROGRAM_STATE int mm_unwrapped_handlers;

/* The call has ended: what was put aside comes now.  No image is made between the thread's number and its use. */
void mm_deliver(void)
{
    uint64_t bits = mm_deferred, mask;
    mm_deferred = 0;
    mm_call.waited_for = 0;
    if (LIKELY(!(bits & MM_CANCELLED))) {
        sys(SYS_rt_sigprocmask, SIG_UNBLOCK, &bits, 0, 8);
        return;
    }
    mask = sys_mask_all();
    while (sys(SYS_tgkill, sys_getpid(), sys_gettid(), 32) == -EAGAIN)
        sys_pause_us(100);             /* this user has no room for a signal */
    sys_mask_back(mask & ~bits);
}

#ifdef MM_CHECKED
#define UNBLOCKABLE (1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1))
/* Whether a handler of the program, which might want what this thread is about to lock, comes later.  For assertions. */
int mm_handlers_wait(void)
{
    uint64_t blocked = 0;
    return mm_depth || mm_holding || !mm_active
        || (sys(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &blocked, 8) == 0 && (blocked | UNBLOCKABLE) == ~0ull);
}
#endif

uint32_t mm_renumbering;

static int run_is_over(void) { return (__atomic_load_n(&mm_area->head->flags, __ATOMIC_SEQ_CST) & MM_OVER) != 0; }

/* A checkpoint is being cut, or a number of this process given to another file: wait outside until it is done.  One whose
 * process was killed is not waited for.  A run by hand that has ended, as main has returned, stays frozen: a call on a file is
 * the kernel's from there on; a thread that has begun any other goes no further, as in any process that exits.  A process whose
 * main has not returned is none that exits: it goes on. */
void mm_enter_wait(int on_file)
{
    uint32_t *freeze = &mm_area->head->freeze, owner;
    int saved = errno, timeouts = 0;
    while (!run_is_over() && ((owner = __atomic_load_n(freeze, __ATOMIC_SEQ_CST))
                       || (__atomic_load_n(&mm_self->calls, __ATOMIC_SEQ_CST) & MM_RENUMBERING))) {
        __atomic_sub_fetch(&mm_self->calls, 1, __ATOMIC_SEQ_CST);
        if (!owner)
            sys_futex_wait(&mm_renumbering, 1, 50000);
        else if (sys_futex_wait(freeze, owner, 50000) == -ETIMEDOUT && !run_is_over()
            && (++timeouts % 20 ? sys(SYS_kill, owner, 0) == -ESRCH : mm_owner_gone(owner, freeze))
            && !mm_half_restored(mm_area))
            __atomic_compare_exchange_n(freeze, &owner, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&mm_self->calls, 1, __ATOMIC_SEQ_CST);
    }
    if (UNLIKELY(run_is_over())) {
        mm_run_over();
        while (!on_file && mm_self->leaving)
            sys(SYS_exit, 0);
    }
    errno = saved;
}
