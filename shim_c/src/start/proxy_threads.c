/* proxy_threads.c - the threads of the proxy.  Whichever gets a call makes it: nothing is handed on.
 *
 * All wait on one epoll set; a listener is armed for one call at a time, and again before that call is made.  Who was the last
 * to wait starts another thread before it makes a call: one call may wait for another (a file system that is a program), and
 * calls of tracked processes are handed back to the kernel at once, without any lock, for those are amid a call of our own, and a
 * checkpoint waits for them.  So there is always somebody who looks.
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

#define TRIES 2                        /* a call that ends one proxy after another is the kernel's */

static int shown = -1;                 /* the epoll set */
static uint32_t threads, waiting, staying;
static uint32_t begun;                                 /* futex: those of the threads that have a present folder of their own */
static uint32_t has_thread[MM_PROXY_PLACES];           /* that waits at this listener alone */
static uint8_t hands_over[MM_PROXY_PLACES];            /* it may: such a wait ends with the listener's programs */
static struct mm_waiting from[MM_PROXY_CALLS];

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

static int one_more_thread(void);

/* A program that confines itself by Landlock may do less than we from then on, and so may what it starts.  These calls, and those
 * that lead elsewhere, are shown so that we know of them. */
static int only_changes_itself(const struct mm_shown *call, const struct mm_waiting *from, int last)
{
    int place = call->listener - MM_PROXY_LISTENERS;
    switch (call->notice.data.nr) {
    case SYS_landlock_restrict_self:
        mm_proxy_shared->confined[place] = 1;
        return 1;
    case SYS_execve: case SYS_execveat:
        if (!last || one_more_thread())            /* to open it may be to wait for another call */
            mm_look_at_program(call, from);
        return 1;
    case SYS_chroot: case SYS_pivot_root: case SYS_unshare: case SYS_setns: case SYS_setgroups: case SYS_setfsuid: case SYS_setfsgid:
        mm_proxy_shared->elsewhere[place] = 1;
        return 1;
    case SYS_umask:
        mm_proxy_shared->own_umask[place] = 1;
        return 1;
    default:
        return mm_proxy_shared->confined[place];
    }
}

static void *thread(void *number);

/* Until it has begun it shares this thread's present folder, and would keep the one to which this goes for a call. */
static int one_more_thread(void)
{
    static uint32_t lock;
    pthread_t one;
    mm_lock(&lock, MM_LOCK_RUNTIME);
    uint32_t number = threads;
    int made = number < MM_PROXY_CALLS && pthread_create(&one, NULL, thread, (void *)(uintptr_t)number) == 0;
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

/* last: nobody else waits now.  stays: this thread waits for the listener's next call, which may come as soon as it has answered. */
static void serve_call(struct mm_shown *call, struct mm_waiting *who, int last, int stays)
{
    long result = 0;
    enum mm_answer how = MM_ANSWER_KERNEL;
    if (call->tries < TRIES && mm_waiting_look(call, who)) {
        call->tgid = who->tgid;
        if (!only_changes_itself(call, who, last) && !is_ours(call) && (!last || one_more_thread())) {
            if (call->tries++ == 0)
                MM_STOP("proxy.got");
            how = mm_make_shown_call(call, who, &result);
            if (call->tries == 1)
                MM_STOP("proxy.made");
        }
    }
    if (stays)
        arm(call->listener, EPOLL_CTL_MOD, 0);
    answer(call, how, result);
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

/* May this thread wait at the listener alone, when it has served it? */
static int stays_at(int place)
{
    return hands_over[place] && __atomic_load_n(&threads, __ATOMIC_RELAXED) <= MM_PROXY_CALLS / 2
        && !__atomic_exchange_n(&has_thread[place], 1, __ATOMIC_ACQ_REL);
}

static void serve_listener(struct mm_shown *call, struct mm_waiting *who, int last)
{
    int listener = call->listener, place = listener - MM_PROXY_LISTENERS, stays = stays_at(place), more = 1;
    serve_call(call, who, last, stays);
    while (stays && more) {
        __atomic_add_fetch(&staying, 1, __ATOMIC_ACQ_REL);
        more = take_call(call, listener);
        __atomic_sub_fetch(&staying, 1, __ATOMIC_ACQ_REL);
        if (more)
            serve_call(call, who, __atomic_load_n(&waiting, __ATOMIC_ACQUIRE) == 0, 1);
    }
    if (stays)
        __atomic_store_n(&has_thread[place], 0, __ATOMIC_RELEASE);
}

static void *thread(void *number)
{
    struct mm_shown *call = &mm_proxy_shared->call[(uintptr_t)number];
    struct mm_waiting *who = &from[(uintptr_t)number];
    struct epoll_event event;
    *who = (struct mm_waiting){ .process = -1, .folder = -1, .status = -1 };
    mm_holding++;
    who->goes = sys(SYS_unshare, CLONE_FS) == 0;       /* a umask and a present folder of its own */
    __atomic_add_fetch(&begun, 1, __ATOMIC_RELEASE);
    sys_futex_wake(&begun, 1);
    if (call->notice.id)               /* its predecessor's */
        serve_call(call, who, 0, 0);
    for (;;) {
        __atomic_add_fetch(&waiting, 1, __ATOMIC_ACQ_REL);
        long n = sys(SYS_epoll_pwait, shown, &event, 1, -1, 0, 8);
        int last = __atomic_sub_fetch(&waiting, 1, __ATOMIC_ACQ_REL) == 0;
        if (n != 1 || !(event.events & EPOLLIN))       /* the first thread sees a listener's end */
            continue;
        if (take_call(call, event.data.fd))
            serve_listener(call, who, last);
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
    return __atomic_load_n(&waiting, __ATOMIC_ACQUIRE) + __atomic_load_n(&staying, __ATOMIC_ACQUIRE) == busy;
}

/* What its predecessor had not answered has a thread's number; two threads more are there for what is to come. */
int mm_proxy_threads_begin(void)
{
    uint32_t highest = 0;
    mm_proxy_know_itself();
    shown = (int)sys(SYS_epoll_create1, EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < MM_PROXY_CALLS; i++)
        if (mm_proxy_shared->call[i].notice.id)
            highest = i + 1;
    for (uint32_t i = 0; i < highest + 2; i++)
        one_more_thread();
    for (uint32_t i = 0; i < MM_PROXY_CALLS; i++)      /* without a thread */
        if (mm_proxy_shared->call[i].notice.id && i >= __atomic_load_n(&threads, __ATOMIC_ACQUIRE))
            answer(&mm_proxy_shared->call[i], MM_ANSWER_KERNEL, 0);
    return shown >= 0 && threads;
}
