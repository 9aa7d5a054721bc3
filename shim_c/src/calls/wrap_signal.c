/* wrap_signal.c - signal handlers never run while their thread is in a tracked call.
 *
 * A handler may write to the file whose lock the interrupted call holds: it would wait for ever; or leave by longjmp,
 * and the call would never end.  Blocking signals around every call would cost two system calls.  So handlers are
 * entered through a trampoline: inside a call the signal is queued again, to the same thread and blocked (also in the
 * context that the handler returns to), and unblocked when the call ends: the kernel keeps the queue.
 * A signal that the thread's own instruction raised is not put aside: there is nothing to go back to.  One with the same number
 * that somebody sent is.
 * A one-shot handler (SA_RESETHAND) that the kernel has taken down could not be put aside.  So the kernel knows it as a lasting
 * one, with the signal blocked while it runs, and the trampoline takes it down before it is called.  What the kernel has
 * installed and what we know of it change together, under a lock, with all signals blocked: nobody sees one without the other.
 * A handler that a raw system call installed has no trampoline: from then on signals are blocked while a lock is held.
 */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <ucontext.h>

MM_PROGRAM_STATE static struct sigaction theirs[_NSIG];
MM_PROGRAM_STATE static uint8_t wrapped[_NSIG];
MM_PROGRAM_STATE static uint8_t loaded[_NSIG];       /* a one-shot handler that has not been called yet */

#define ONE_SHOT (SA_RESETHAND | SA_NODEFER)

/* Of what the kernel says by itself only the memory error that was found behind a program's back waits for anything. */
static int synchronous(int number, const siginfo_t *info)
{
    int fault = number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGTRAP
             || number == SIGSYS;
    return fault && info->si_code > 0 && !(number == SIGBUS && info->si_code == BUS_MCEERR_AO);
}

static uint32_t actions_lock;

static uint64_t begin_change(void)
{
    uint64_t mask = sys_mask_all();
    mm_lock(&actions_lock, MM_LOCK_ACTIONS);
    return mask;
}

static void end_change(uint64_t mask)
{
    mm_unlock(&actions_lock);
    sys_mask_back(mask);
}

void mm_actions_after_fork(void) { actions_lock = 0; }

static void queue_again(int number, siginfo_t *info)
{
    if (sys(SYS_rt_tgsigqueueinfo, sys_getpid(), sys_gettid(), number, info) < 0)
        sys(SYS_tgkill, sys_getpid(), sys_gettid(), number);
}

static void put_aside(int number, siginfo_t *info, ucontext_t *context)
{
    uint64_t bit = 1ull << (number - 1);
    sigaddset(&context->uc_sigmask, number);
    sys(SYS_rt_sigprocmask, SIG_BLOCK, &bit, 0, 8);
    queue_again(number, info);
    mm_defer(bit);
}

/* Whether this one-shot handler is this signal's to call: then it is taken down first, as the kernel would.  Where another
 * thread was before, the signal comes again when this returns and finds what stands there now. */
static int shoot(int number, siginfo_t *info, struct sigaction *action)
{
    uint64_t bit = 1ull << (number - 1), mask = begin_change();
    int mine = loaded[number];
    if (mine) {
        struct sigaction down = *action = theirs[number];
        down.sa_handler = SIG_DFL;
        loaded[number] = wrapped[number] = 0;
        REAL(sigaction)(number, &down, NULL);
    }
    end_change(mask);
    if (!mine)
        queue_again(number, info);
    else if ((action->sa_flags & SA_NODEFER) && !sigismember(&action->sa_mask, number))
        sys(SYS_rt_sigprocmask, SIG_UNBLOCK, &bit, 0, 8);
    return mine;
}

/* A call of wrap_blocking.c ends with EINTR for the program's own signal, also where a checkpoint is about to make it again. */
static void interrupted(ucontext_t *context)
{
#ifdef __x86_64__
    greg_t *r = context->uc_mcontext.gregs;
    if (UNLIKELY(mm_wait.again) && mm_wait.number && r[REG_RIP] == (greg_t)mm_wait.again) {
        r[REG_RIP] += 2;
        r[REG_RAX] = -EINTR;
    }
#endif
    mm_wait.handled = 1;
}

/* A SIGTERM that waited for its checkpoint, and that the program left to the kernel. */
static void by_default(int number)
{
    struct sigaction action = { .sa_handler = SIG_DFL };
    uint64_t bit = 1ull << (number - 1);
    if (mm_self)                       /* as a call that does not end: no image is made of a program on its way out */
        __atomic_add_fetch(&mm_self->calls, 1, __ATOMIC_SEQ_CST);
    REAL(sigaction)(number, &action, NULL);
    sys(SYS_tgkill, sys_getpid(), sys_gettid(), number);
    sys(SYS_rt_sigprocmask, SIG_UNBLOCK, &bit, 0, 8);
}

/* Nothing of what a thread does between a SIGTERM's arrival and the decision about it may come back later, when the signal is
 * none any more: no image is made while a thread stands here, nor while it counts as in a call. */
static int term_is_held(const siginfo_t *info, void *context)
{
    __atomic_add_fetch(&mm_self->calls, 1, __ATOMIC_SEQ_CST);
    int waits = mm_term_waits(info, context);
    __atomic_sub_fetch(&mm_self->calls, 1, __ATOMIC_SEQ_CST);
    return waits;
}

__attribute__((section("mm_entry"), noinline))
static void enter_handler(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    if (UNLIKELY(mm_holding || mm_depth) && !synchronous(number, info)) {
        put_aside(number, info, context);
        errno = saved;
        return;
    }
    if (UNLIKELY(number == SIGTERM) && mm_self && term_is_held(info, context)) {
        errno = saved;
        return;
    }
    struct sigaction action = theirs[number];
    if (UNLIKELY(action.sa_handler == SIG_DFL)) {
        by_default(number);
        return;
    }
    interrupted(context);
    if (UNLIKELY(action.sa_flags & SA_RESETHAND) && !shoot(number, info, &action))
        return;
    int within = mm_within_syscall;
    mm_within_syscall = 0;             /* what the handler calls is its own, also when it never comes back */
    uint32_t numbers = mm_numbers;
    mm_numbers = 0;
    if (UNLIKELY(mm_memory_head != NULL)) {
        mm_sender_out(info);
        mm_numbers_known(context);
    }
    action.sa_sigaction(number, info, context);
    if (UNLIKELY(mm_memory_head != NULL))
        mm_numbers_real(context);
    mm_numbers = numbers;
    mm_within_syscall = within;
}

static int is_handler(const struct sigaction *action)
{
    return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

static int is_held(int number, const struct sigaction *action)
{
    return number == SIGTERM && action->sa_handler == SIG_DFL && mm_memory_head && mm_memory_head->flags & MM_ON_TERM;
}

EXPORT int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
    if (number <= 0 || number >= _NSIG)
        return REAL(sigaction)(number, action, old);
    if (action && mm_usable(action, sizeof *action, 0) < sizeof *action)
        return REAL(sigaction)(number, action, old);       /* the kernel says what is wrong with it */
    struct sigaction ours;
    uint64_t mask = begin_change();
    struct sigaction before = theirs[number];
    int was_wrapped = wrapped[number], was_loaded = loaded[number], wrap = action && (is_handler(action) || is_held(number, action));
    if (wrap) {
        ours = *action;
        ours.sa_sigaction = enter_handler;
        ours.sa_flags |= SA_SIGINFO;
        if (action->sa_flags & SA_RESETHAND)
            ours.sa_flags &= ~ONE_SHOT;
        if (!is_handler(action))
            ours.sa_flags |= SA_RESTART | SA_ONSTACK;
        theirs[number] = *action;
        MM_STOP("signal.action");
        wrapped[number] = 1;
        loaded[number] = (action->sa_flags & SA_RESETHAND) != 0;
    }
    int r = REAL(sigaction)(number, wrap ? &ours : action, old);
    if (r < 0 && action) {
        theirs[number] = before;
        wrapped[number] = (uint8_t)was_wrapped;
        loaded[number] = (uint8_t)was_loaded;
    } else if (action && !wrap) {
        wrapped[number] = 0;
    }
    end_change(mask);
    if (r == 0 && old && was_wrapped && old->sa_sigaction == enter_handler) {
        old->sa_sigaction = before.sa_sigaction;           /* other flags and the mask are as the kernel tells them */
        if (before.sa_flags & SA_RESETHAND)
            old->sa_flags |= before.sa_flags & ONE_SHOT;
        if (!(before.sa_flags & SA_SIGINFO))
            old->sa_flags &= ~SA_SIGINFO;
        if (!is_handler(&before))
            old->sa_flags = before.sa_flags;
    }
    return r;
}

/* `run --on-term checkpoint`: when the process has begun, or come back from an image that knew nothing of it. */
void mm_hold_term(void)
{
    struct sigaction now;
    if (mm_memory_head->flags & MM_ON_TERM && REAL(sigaction)(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        sigaction(SIGTERM, &now, NULL);
}

static mm_handler install(int number, mm_handler handler, int flags)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = flags }, old;
    if (handler == SIG_ERR) {
        errno = EINVAL;
        return SIG_ERR;
    }
    if (!(flags & SA_NODEFER))
        sigaddset(&action.sa_mask, number);
    return sigaction(number, &action, &old) < 0 ? SIG_ERR : old.sa_handler;
}

MM_PROGRAM_STATE static uint8_t interrupts[_NSIG];

EXPORT mm_handler signal(int number, mm_handler handler)
{
    return install(number, handler, number > 0 && number < _NSIG && interrupts[number] ? 0 : SA_RESTART);
}

EXPORT mm_handler __sysv_signal(int number, mm_handler handler)
{
    return install(number, handler, SA_RESETHAND | SA_NODEFER);
}

/* SIG_HOLD blocks the signal; anything else is installed and unblocks it. */
EXPORT mm_handler sigset(int number, mm_handler handler)
{
    int hold = handler == SIG_HOLD;
    struct sigaction action = { .sa_handler = handler }, old;
    sigset_t one, before;
    sigemptyset(&one);
    if (sigaddset(&one, number) < 0 || (!hold && sigaction(number, &action, &old) < 0)
        || sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &one, &before) < 0)
        return SIG_ERR;
    if (sigismember(&before, number))
        return SIG_HOLD;
    return hold && sigaction(number, NULL, &old) < 0 ? SIG_ERR : old.sa_handler;
}

EXPORT int siginterrupt(int number, int interrupt)
{
    struct sigaction action;
    if (sigaction(number, NULL, &action) < 0)
        return -1;
    interrupts[number] = interrupt != 0;
    action.sa_flags = interrupt ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
    return sigaction(number, &action, NULL);
}

/* -- a thread that may be cancelled at any instruction: not in a call (memory/handler.c) ----------------------------- */

static MM_PROGRAM_STATE uint32_t cancels_wait;

/* Since glibc 2.34 it installs its handler when the first thread is cancelled, with no word between that and the signal: so one of
 * ours is, which takes no notice. */
static void *cancelled_first(void *unused)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    REAL(pthread_cancel)(pthread_self());
    mm_handler_install();
    __atomic_store_n(&cancels_wait, 1, __ATOMIC_RELEASE);
    sys_futex_wake(&cancels_wait, 1 << 30);
    return unused;
}

static void let_cancels_wait(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    uint64_t but_the_library_s = ~(3ull << (MM_MEMORY_SIGNAL - 1)), before;
    int cancels = mm_hold_cancellation();
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sys(SYS_rt_sigprocmask, SIG_SETMASK, &but_the_library_s, &before, 8);
    int r = pthread_create(&thread, &attributes, cancelled_first, NULL);
    sys(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, 8);
    while (!r && !__atomic_load_n(&cancels_wait, __ATOMIC_ACQUIRE))
        sys_futex_wait(&cancels_wait, 0, 1000000);
    pthread_setcancelstate(cancels, NULL);
}

EXPORT int pthread_setcanceltype(int type, int *old)
{
    if (type == PTHREAD_CANCEL_ASYNCHRONOUS) {
        if (!__atomic_load_n(&cancels_wait, __ATOMIC_ACQUIRE))
            let_cancels_wait();
        mm_cancelled_at_once = 1;
    }
    int r = REAL(pthread_setcanceltype)(type, old);
    if (r == 0)
        mm_cancelled_at_once = type == PTHREAD_CANCEL_ASYNCHRONOUS;
    return r;
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_signal(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
