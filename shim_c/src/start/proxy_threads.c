/* proxy_threads.c - the threads of the proxy.  Whichever gets a call makes it, while there are enough.
 *
 * All wait on one epoll set; a listener is armed for one call at a time, and again before that call is made.  Who was the last
 * to wait starts another thread before it makes a call: one call may wait for another (a file system that is a program), and
 * calls of tracked processes are handed back to the kernel at once, without any lock, for those are amid a call of our own, and a
 * checkpoint waits for them.  So there is always somebody who looks.  Where no other thread can be had, the call is left to the
 * first that is free: many may wait for a checkpoint.
 *
 * Who has served a listener waits at that one alone for its next call, as long as no other thread does: the kernel then runs it
 * where the program ran, at once (Linux 6.6).  Through epoll it would look for a free processor, on a busy machine for long.
 */
#include "start/proxy.h"
#include "process/call_filter.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)    /* Linux 6.6 */
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

#define TOO_MANY 12                    /* as the other keys of mm_first_time */
#define CONFINED 13
#define TRIES 2                        /* a call that ends one proxy after another is the kernel's */
#define PATIENCE_MS 10000              /* none of the calls that were left got a thread, and no checkpoint keeps them: they may wait
                                        * for each other */

static int shown = -1;                 /* the epoll set */
static uint32_t threads, waiting, staying, stayers;    /* staying: stayers that wait */
static uint32_t begun;                                 /* futex: those of the threads that have a present folder of their own */
static LARGE uint32_t has_thread[MM_PROXY_PLACES];     /* that waits at this listener alone */
static LARGE uint8_t hands_over[MM_PROXY_PLACES];      /* it may: such a wait ends with the listener's programs */
static LARGE struct mm_waiting from[MM_PROXY_THREADS];
static struct mm_shown *first[MM_PROXY_THREADS];       /* what a thread begins with */

/* -- calls, and who has them -------------------------------------------------------------------------- */

enum { FREE, HELD, LEFT };             /* LEFT: to whichever thread comes */
static LARGE uint8_t whose[MM_PROXY_CALLS];
static uint32_t left, gone_on, next_left;              /* how many are; how many were, and got a thread */

static int hold_call(uint32_t i, uint8_t as)
{
    return __atomic_compare_exchange_n(&whose[i], &as, HELD, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void let_call_go(const struct mm_shown *call, uint8_t as)
{
    __atomic_store_n(&whose[call - mm_proxy_shared->call], as, __ATOMIC_RELEASE);
}

static struct mm_shown *free_call(void)
{
    uint32_t i = 0, *used = &mm_proxy_shared->used, before = __atomic_load_n(used, __ATOMIC_ACQUIRE);
    while (i < MM_PROXY_CALLS && !hold_call(i, FREE))
        i++;
    while (i < MM_PROXY_CALLS && before <= i
           && !__atomic_compare_exchange_n(used, &before, i + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
    return i < MM_PROXY_CALLS ? &mm_proxy_shared->call[i] : NULL;
}

static void leave_call(struct mm_shown *call)
{
    __atomic_add_fetch(&left, 1, __ATOMIC_ACQ_REL);
    let_call_go(call, LEFT);
}

/* About in their order. */
static struct mm_shown *take_left_call(void)
{
    uint32_t used = __atomic_load_n(&mm_proxy_shared->used, __ATOMIC_ACQUIRE), at = __atomic_load_n(&next_left, __ATOMIC_RELAXED);
    for (uint32_t n = 0, i; n < used; n++)
        if (hold_call(i = (at + n) % used, LEFT)) {
            __atomic_store_n(&next_left, i + 1, __ATOMIC_RELAXED);
            __atomic_add_fetch(&gone_on, 1, __ATOMIC_ACQ_REL);
            __atomic_sub_fetch(&left, 1, __ATOMIC_ACQ_REL);
            return &mm_proxy_shared->call[i];
        }
    return NULL;
}

static void answer(struct mm_shown *call, enum mm_answer how, long result)
{
    struct seccomp_notif_resp response = { .id = call->notice.id };
    if (how == MM_ANSWER_KERNEL)
        response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    else if (result < 0)
        response.error = (int)result;
    else
        response.val = result;
    sys(SYS_ioctl, call->listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
    memset(&call->notice, 0, sizeof call->notice);     /* the kernel wants it so */
}

/* Our library is in it, or is about to join: nobody may wait here for anything. */
static int is_ours(const struct mm_shown *call)
{
    const struct mm_header *h = mm_area->head;
    uint32_t slot = mm_process_of(mm_area, call->tgid);
    uint32_t outside = slot ? __atomic_load_n(&mm_proc(mm_area, slot)->outside, __ATOMIC_ACQUIRE) : 1;
    return !outside || outside == MM_OUTSIDE_SOON
        || call->tgid == __atomic_load_n(&h->freeze, __ATOMIC_RELAXED)
        || call->tgid == __atomic_load_n(&h->session_lock, __ATOMIC_RELAXED);
}

/* -- what they are ------------------------------------------------------------------------------------ */

enum task { NOTHING, LOOK, MAKE };     /* nothing: the kernel makes it, and that is noted at most */

/* A program that confines itself by Landlock may do less than we from then on, and so may what it starts.  These calls, and those
 * that lead elsewhere, are shown so that we know of them; what the kernel will say is not known yet.  Nothing is read here that may
 * have to be waited for. */
static enum task task_of(struct mm_shown *call, struct mm_waiting *who)
{
    int place = call->listener - MM_PROXY_LISTENERS;
    if (call->tries >= TRIES || !mm_waiting_look(call, who))
        return NOTHING;
    call->tgid = who->tgid;
    switch (call->notice.data.nr) {
    case SYS_landlock_restrict_self:
        mm_proxy_shared->confined[place] = 1;
        mm_say_not_tracked(call, who, CONFINED, "it asks to be confined by Landlock. Its files, and what others here that are not dynamic change,");
        return NOTHING;
    case SYS_execve: case SYS_execveat: case SYS_seccomp: case SYS_prctl:
        return LOOK;
    case SYS_chroot: case SYS_pivot_root: case SYS_unshare: case SYS_setns: case SYS_setgroups: case SYS_setfsuid: case SYS_setfsgid:
        mm_proxy_shared->elsewhere[place] = 1;
        return NOTHING;
    case SYS_umask:
        mm_proxy_shared->own_umask[place] = 1;
        return NOTHING;
    default:
        return mm_proxy_shared->confined[place] || is_ours(call) ? NOTHING : MAKE;
    }
}

/* -- threads ------------------------------------------------------------------------------------------ */

static void *thread(void *number);

/* Until it has begun it shares this thread's present folder, and would keep the one to which this goes for a call. */
static int one_more_thread(void)
{
    static uint32_t lock;
    pthread_t one;
    mm_lock(&lock, MM_LOCK_RUNTIME);
    uint32_t number = threads;
    int made = number < MM_PROXY_THREADS && (first[number] = free_call()) != NULL;
    if (made && pthread_create(&one, NULL, thread, (void *)(uintptr_t)number) != 0) {
        let_call_go(first[number], FREE);
        made = 0;
    }
    if (made)
        __atomic_store_n(&threads, number + 1, __ATOMIC_RELEASE);
    while (made && __atomic_load_n(&begun, __ATOMIC_ACQUIRE) == number)
        sys_futex_wait(&begun, number, 1000000);
    mm_unlock(&lock);
    return made;
}

static void arm(int listener, int how, uint32_t events)
{
    struct epoll_event event = { .events = events | EPOLLONESHOT, .data.fd = listener };
    sys(SYS_epoll_ctl, shown, how, listener, &event);
}

static void too_many(const struct mm_shown *call, const struct mm_waiting *who)
{
    mm_area->head->outside_for_good = 1;
    __atomic_store_n(&mm_area->head->untracked, 1, __ATOMIC_SEQ_CST);
    mm_say_not_tracked(call, who, TOO_MANY, "it makes too many calls at once. Some of its changes");
}

static enum mm_answer look_before(const struct mm_shown *call, const struct mm_waiting *who, long *result)
{
    if (call->notice.data.nr == SYS_seccomp || call->notice.data.nr == SYS_prctl)
        return mm_hands_calls_over(call) ? mm_answered_by(-EINVAL, result) : MM_ANSWER_KERNEL;
    mm_look_at_program(call, who);
    return MM_ANSWER_KERNEL;
}

/* last: nobody else waits now.  stays: this thread waits for the listener's next call, which may come as soon as it has answered.
 * What the thread has from then on: another one, if it has left this. */
static struct mm_shown *serve_call(struct mm_shown *call, struct mm_waiting *who, int last, int stays)
{
    long result = 0;
    enum mm_answer how = MM_ANSWER_KERNEL;
    enum task task = task_of(call, who);
    if (task != NOTHING && last && !one_more_thread()) {     /* to look is to open it, or read memory: to wait for another call, it may be */
        struct mm_shown *other = is_ours(call) ? NULL : free_call();
        if (other) {
            leave_call(call);
            return other;
        }
        if (!is_ours(call))
            too_many(call, who);
        task = NOTHING;
    }
    if (task == LOOK) {
        how = look_before(call, who, &result);
    } else if (task == MAKE) {
        if (call->tries++ == 0)
            MM_STOP("proxy.got");
        how = mm_make_shown_call(call, who, &result);
        if (call->tries == 1)
            MM_STOP("proxy.made");
    }
    if (stays)
        arm(call->listener, EPOLL_CTL_MOD, 0);
    answer(call, how, result);
    return call;
}

static int is_frozen(void) { return __atomic_load_n(&mm_area->head->freeze, __ATOMIC_ACQUIRE) != 0; }

/* Nothing has moved for long. */
static void give_to_kernel(struct mm_shown *call, struct mm_waiting *who)
{
    if (mm_waiting_look(call, who))
        too_many(call, who);
    answer(call, MM_ANSWER_KERNEL, 0);
    let_call_go(call, FREE);
}

/* The next call at a listener.  0: there was none, for its thread was killed, or its programs have ended. */
static int take_call(struct mm_shown *call, int listener)
{
    call->listener = listener;
    call->tries = 0;
    call->given = 0;
    memset(&call->notice, 0, sizeof call->notice);
    long r = sys(SYS_ioctl, listener, SECCOMP_IOCTL_NOTIF_RECV, &call->notice);
    arm(listener, EPOLL_CTL_MOD, EPOLLIN);
    return r == 0;
}

static void stays_no_more(int place)
{
    __atomic_sub_fetch(&stayers, 1, __ATOMIC_ACQ_REL);
    __atomic_store_n(&has_thread[place], 0, __ATOMIC_RELEASE);
}

/* May this thread wait at the listener alone, when it has served it?  Two do not: one looks, and one makes what was left. */
static int stays_at(int place)
{
    if (!hands_over[place] || __atomic_load_n(&threads, __ATOMIC_RELAXED) > MM_PROXY_THREADS / 2
        || __atomic_exchange_n(&has_thread[place], 1, __ATOMIC_ACQ_REL))
        return 0;
    if (__atomic_add_fetch(&stayers, 1, __ATOMIC_ACQ_REL) + 2 <= __atomic_load_n(&threads, __ATOMIC_ACQUIRE) || one_more_thread())
        return 1;
    stays_no_more(place);
    return 0;
}

static struct mm_shown *serve_listener(struct mm_shown *call, struct mm_waiting *who, int last)
{
    int listener = call->listener, place = listener - MM_PROXY_LISTENERS, stays = stays_at(place), more = stays;
    struct mm_shown *now = serve_call(call, who, last, stays);
    while (more && now == call) {
        __atomic_add_fetch(&staying, 1, __ATOMIC_ACQ_REL);
        more = take_call(call, listener);
        __atomic_sub_fetch(&staying, 1, __ATOMIC_ACQ_REL);
        if (more)
            now = serve_call(call, who, __atomic_load_n(&waiting, __ATOMIC_ACQUIRE) == 0, 1);
    }
    if (stays)
        stays_no_more(place);
    return now;
}

static void *thread(void *number)
{
    struct mm_shown *call = first[(uintptr_t)number], *found;
    struct mm_waiting *who = &from[(uintptr_t)number];
    struct epoll_event event;
    *who = (struct mm_waiting){ .process = -1, .folder = -1, .status = -1 };
    mm_holding++;
    who->goes = sys(SYS_unshare, CLONE_FS) == 0;       /* a umask and a present folder of its own */
    __atomic_add_fetch(&begun, 1, __ATOMIC_RELEASE);
    sys_futex_wake(&begun, 1);
    uint32_t moved = 0;
    uint64_t since = 0;                /* nothing that was left has gone on, and nobody froze the run */
    for (;;) {
        int others = __atomic_add_fetch(&waiting, 1, __ATOMIC_ACQ_REL) > 1;
        uint32_t any = __atomic_load_n(&left, __ATOMIC_ACQUIRE), now = __atomic_load_n(&gone_on, __ATOMIC_ACQUIRE);
        if (!any)
            since = 0;
        else if (!since || moved != now || is_frozen())
            moved = now, since = sys_now_ns() / 1000000;
        found = any && (others || one_more_thread()) ? take_left_call() : NULL;
        long n = found ? -1 : sys(SYS_epoll_pwait, shown, &event, 1, any ? PATIENCE_MS : -1, 0, 8);
        int last = __atomic_sub_fetch(&waiting, 1, __ATOMIC_ACQ_REL) == 0;
        if (found) {
            let_call_go(call, FREE);
            call = serve_call(found, who, last, 0);
            continue;
        }
        if (since && moved == __atomic_load_n(&gone_on, __ATOMIC_ACQUIRE) && !is_frozen()
            && sys_now_ns() / 1000000 - since >= PATIENCE_MS)
            while ((found = take_left_call()) != NULL)
                give_to_kernel(found, who);
        if (n == 1 && event.events & EPOLLIN && take_call(call, event.data.fd))     /* the first thread sees a listener's end */
            call = serve_listener(call, who, last);
    }
    return NULL;
}

void mm_proxy_watch(int listener)
{
    hands_over[listener - MM_PROXY_LISTENERS] =
        sys(SYS_ioctl, listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP) == 0;
    arm(listener, EPOLL_CTL_ADD, EPOLLIN);
}

void mm_proxy_forget(int listener) { arm(listener, EPOLL_CTL_DEL, 0); }

int mm_proxy_is_idle(void)
{
    uint32_t busy = __atomic_load_n(&threads, __ATOMIC_ACQUIRE);
    return !__atomic_load_n(&left, __ATOMIC_ACQUIRE)
        && __atomic_load_n(&waiting, __ATOMIC_ACQUIRE) + __atomic_load_n(&staying, __ATOMIC_ACQUIRE) == busy;
}

/* What its predecessor had not answered is left to the threads, but for what waits for nothing. */
int mm_proxy_threads_begin(void)
{
    static struct mm_waiting who = { .process = -1, .folder = -1, .status = -1 };
    mm_proxy_know_itself();
    shown = (int)sys(SYS_epoll_create1, EPOLL_CLOEXEC);
    for (struct mm_shown *call = mm_proxy_shared->call, *end = call + mm_proxy_shared->used; call < end; call++) {
        if (!call->notice.id)
            continue;
        if (task_of(call, &who) == NOTHING)
            answer(call, MM_ANSWER_KERNEL, 0);
        else
            leave_call(call);
    }
    one_more_thread();
    one_more_thread();
    return shown >= 0 && threads;
}
