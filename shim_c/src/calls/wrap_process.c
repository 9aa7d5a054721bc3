/* wrap_process.c - beginnings and ends of processes and threads, and the folder that they are in; timers that start threads. */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <gnu/libc-version.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/vfs.h>
#include <stdlib.h>

/* process/vfork.c.  The child returns first, and uses the stack from there on: the way back is kept where it cannot reach it. */
#ifdef __x86_64__
EXPORT __attribute__((naked)) pid_t vfork(void)
{
    __asm__("sub $8, %rsp\n\t"
            "call mm_vfork_begin\n\t"
            "add $8, %rsp\n\t"
            "test %eax, %eax\n\t"
            "jz 1f\n\t"
            "pop %rdi\n\t"
            "mov $58, %eax\n\t"            /* SYS_vfork */
            "syscall\n\t"
            "push %rdi\n\t"
            "mov %rax, %rdi\n\t"
            "sub $8, %rsp\n\t"
            "call mm_vforked\n\t"
            "add $8, %rsp\n\t"
            "ret\n"
            "1:\tjmp fork@PLT");
}
#else
EXPORT pid_t vfork(void)
{
    extern pid_t fork(void);
    return fork();
}
#endif

EXPORT pid_t _Fork(void)
{
    mm_fork_begin();
    pid_t r = REAL(_Fork)();
    if (r == 0)
        mm_in_child();
    pid_t known = mm_number_out(r);
    if (r)
        mm_fork_in_parent();
    return known;
}

#define NAMESPACE "it uses process numbers of its own (a PID namespace): the files of what is started there are not checkpointed"

/* Process numbers, the table of descriptors or the folders have become other ones: noted when the kernel has agreed.  A child with
 * other numbers may run by then, so files are in place before (mm_outsider_comes). */
void mm_other_world(unsigned long flags)
{
    if (!active())
        return;
    int saved = errno;
    if (flags & CLONE_NEWPID)
        mm_outsider_for_good(3, NAMESPACE);
    if ((flags & CLONE_FILES) && mm_first_time(4))
        mm_say("a thread or process has a table of descriptors that is not its memory's: it is not tracked");
    if (flags & CLONE_NEWNS)
        mm_elsewhere = 1;
    errno = saved;
}

/* A process with memory of its own begins in a function; one in our memory is no more than a thread to us. */
struct beginning {
    int (*function)(void *);
    void *argument;
    int flags;
};

static int begin_apart(void *data)
{
    struct beginning *b = data;
    mm_elsewhere |= (b->flags & CLONE_NEWNS) != 0;
    mm_in_child();
    return b->function(b->argument);
}

EXPORT int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
    va_list list;
    va_start(list, argument);
    pid_t *parent_tid = va_arg(list, pid_t *);
    void *tls = va_arg(list, void *);
    pid_t *child_tid = va_arg(list, pid_t *);
    va_end(list);
    if (!active() || !function || !stack)
        return REAL(clone)(function, stack, flags, argument, parent_tid, tls, child_tid);
    int shares_memory = flags & CLONE_VM, shares_files = flags & CLONE_FILES;
    if (flags & CLONE_NEWPID)
        mm_outsider_comes();
    if (shares_memory) {
        int before = mm_elsewhere;
        mm_elsewhere |= (flags & CLONE_NEWNS) != 0;
        mm_cloned = 1;
        mm_may_part(flags);
        if (!shares_files)
            mm_memory_shared = 1;
        int r = REAL(clone)(function, stack, flags, argument, parent_tid, tls, child_tid);
        if (r < 0)
            mm_elsewhere = before;
        else
            mm_other_world(flags & CLONE_NEWPID);
        return r;
    }
    struct beginning b = { function, argument, flags };
    mm_fork_begin();
    int r = mm_number_out(REAL(clone)(begin_apart, stack, flags, &b, parent_tid, tls, child_tid));
    mm_fork_in_parent();
    if (r >= 0)
        mm_other_world(flags & (CLONE_NEWPID | CLONE_FILES));
    return r;
}

/* None begins while all are asked to stop: of threads that start others, and end, there would always be one not asked. */
EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
    if (LIKELY(!mm_memory_head))
        return REAL(pthread_create)(thread, attributes, function, argument);
    mm_await_no_stop();
    mm_holding++;
    mm_late_begin();
    int r = REAL(pthread_create)(thread, attributes, function, argument);
    mm_late_end();
    mm_holding--;
    mm_deliver_if_free();
    return r;
}

EXPORT int unshare(int flags)
{
    if (flags & (CLONE_FS | CLONE_NEWNS))
        __atomic_store_n(&mm_folders_apart, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&mm_places_apart, 1, __ATOMIC_SEQ_CST);
    int r = REAL(unshare)(flags);
    if (r == 0)
        mm_other_world(flags & (CLONE_NEWPID | CLONE_NEWNS | CLONE_FILES));
    return r;
}

EXPORT int setns(int fd, int type)
{
    __atomic_store_n(&mm_places_apart, 1, __ATOMIC_SEQ_CST);
    int r = REAL(setns)(fd, type);
    if (r == 0)
        mm_other_world((type & CLONE_NEWPID) | CLONE_NEWNS);   /* a pidfd may mean several */
    return r;
}

EXPORT int chroot(const char *path)
{
    int r = REAL(chroot)(path);
    if (r == 0)
        mm_elsewhere = 1;
    return r;
}

static int moves_beside_others(void) { return active() && !(*mm_single_threaded && !mm_cloned) && !mm_in_vfork; }

/* asked, fs: what statfs says of the folder.  A program serves it, or a way to it, as may be where it says nothing: that may be one
 * of the run, and nobody waits for the call. */
static int maybe_served(long asked, const struct statfs *fs) { return asked < 0 || fs->f_type == MM_OF_A_PROGRAM; }

static int moved(int r)
{
    if (r == 0 && active())
        mm_way_changed();
    return r;
}

/* Threads are in one folder: from another one a name that one of them has just looked up is another file's.  So no name is held
 * meanwhile, and who looked one up before looks again. */
static void begin_moving(struct mm_names *names)
{
    enter();
    mm_hold_all_names(names);
}

static int end_moving(struct mm_names *names, int r)
{
    int saved = errno;
    moved(r);
    mm_let_names_go(names);
    leave();
    errno = saved;
    return r;
}

EXPORT int chdir(const char *path)
{
    struct mm_names names;
    struct statfs fs;
    if (!moves_beside_others())
        return REAL(chdir)(path);
    if (maybe_served(sys(SYS_statfs, path, &fs), &fs))
        return moved(REAL(chdir)(path));
    begin_moving(&names);
    return end_moving(&names, REAL(chdir)(path));
}
EXPORT int fchdir(int fd)
{
    fd = mm_theirs(fd);
    struct mm_names names;
    struct statfs fs;
    if (!moves_beside_others())
        return REAL(fchdir)(fd);
    if (maybe_served(sys(SYS_fstatfs, fd, &fs), &fs))
        return moved(REAL(fchdir)(fd));
    begin_moving(&names);
    return end_moving(&names, REAL(fchdir)(fd));
}

/* It comes back in a child. */
EXPORT int daemon(int keep_folder, int keep_standard)
{
    int r = REAL(daemon)(keep_folder, keep_standard);
    if (r == 0)
        mm_standard_replaced();
    return r;
}

EXPORT int login_tty(int terminal)
{
    int r = REAL(login_tty)(terminal);
    if (r == 0)
        mm_standard_replaced();
    return r;
}

EXPORT void _exit(int status)
{
    if (active())
        mm_last_out();
    REAL(_exit)(status);
    __builtin_unreachable();
}

/* Limits that the library lifts: as the program set them, whichever thread needs them lifted (lift.c). */
struct limit_call { int resource, sets, alone, runtime; uint64_t mask, outer; };

static int is_lifted(int resource) { return resource == RLIMIT_FSIZE || resource == RLIMIT_NOFILE; }

/* A call on a tracked file, and one of the runtime, asks when it begins whether files have a size limit, and lifts that until
 * its end: so the limit is set where none is under way. */
static struct limit_call limit_begin(int resource, int sets)
{
    struct limit_call c = { resource, sets && resource == RLIMIT_FSIZE, 0, 0, 0, 0 };
    if (!is_lifted(resource))
        return c;
    c.alone = c.sets && active() && !mm_depth && !mm_stranger();
    if (c.alone) {
        c.outer = defer_handlers();
        c.runtime = mm_runtime_hold();
        mm_hold_calls();
    }
    c.mask = mm_limit_begin();
    return c;
}

/* r: what the call answered. */
static long limit_end(const struct limit_call *c, long r)
{
    if (!is_lifted(c->resource))
        return r;
    int saved = errno;
    if (c->sets)
        __atomic_store_n(&mm_size_limit, 0, __ATOMIC_RELAXED);
    mm_limit_end(c->mask);
    if (c->alone) {
        mm_let_calls_go();
        mm_runtime_let_go(c->runtime);
        deliver_handlers(c->outer);
    }
    errno = saved;
    return r;
}

EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
    struct limit_call c = limit_begin(resource, 1);
    return (int)limit_end(&c, REAL(setrlimit)(resource, limit));
}
EXPORT int getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
    struct limit_call c = limit_begin(resource, 0);
    return (int)limit_end(&c, REAL(getrlimit)(resource, limit));
}
EXPORT int prlimit(pid_t pid, enum __rlimit_resource resource, const struct rlimit *limit, struct rlimit *old)
{
    struct limit_call c = limit_begin(resource, limit != NULL);
    return (int)limit_end(&c, MM_NUMBERS(int, REAL(prlimit)(mm_real_thread_number(pid), resource, limit, old)));
}
EXPORT long ulimit(int what, ...)
{
    va_list list;
    va_start(list, what);
    long value = va_arg(list, long);
    va_end(list);
    struct limit_call c = limit_begin(RLIMIT_FSIZE, 1);
    return limit_end(&c, REAL(ulimit)(what, value));
}
EXPORT int vlimit(enum __vlimit_resource resource, int value)
{
    struct limit_call c = limit_begin(RLIMIT_FSIZE, 1);
    return (int)limit_end(&c, REAL(vlimit)(resource, value));
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_process(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"

/* -- timers, and those that start threads -----------------------------------------------------------
 * In a run with memory the latter are told to a thread of ours, which starts the program's as the C library does
 * (memory/timer_threads.c).  For the C library they are timers of any kind: it sets, asks and deletes them. */

static MM_PROGRAM_STATE pthread_mutex_t of_timers = PTHREAD_MUTEX_INITIALIZER;

struct start { void (*function)(union sigval); union sigval value; };

/* Before glibc 2.32; since then it begins with those blocked that the thread which starts it has. */
static int unblocks(void)
{
    const char *minor = strchr(gnu_get_libc_version(), '.');
    return minor && atoi(minor + 1) < 32;
}

static void *notified(void *argument)
{
    struct start start = *(struct start *)argument;
    uint64_t none = 0;
    if (unblocks())
        sys(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, 8);
    free(argument);
    start.function(start.value);
    return NULL;
}

/* Who deletes the timer waits: behind that it starts none. */
static void start_due(void)
{
    pthread_mutex_lock(&of_timers);
    for (struct mm_thread_timer *t = mm_starter.timer; t < mm_starter.timer + mm_starter.high; t++)
        while (t->used && (uint32_t)__atomic_load_n(&t->due, __ATOMIC_SEQ_CST)) {
            pthread_t thread;
            struct start *start = malloc(sizeof *start);
            __atomic_sub_fetch(&t->due, 1, __ATOMIC_SEQ_CST);
            if (start)
                *start = (struct start){ t->function, t->value };
            if (start && pthread_create(&thread, &t->attributes, notified, start))
                free(start);               /* no more threads: the C library says nothing either */
        }
    pthread_mutex_unlock(&of_timers);
}

static void *starter(void *unused)
{
    mm_starter.thread = (uint64_t)__builtin_thread_pointer();
    __atomic_store_n(&mm_starter.tid, (uint32_t)gettid(), __ATOMIC_RELEASE);
    sys_futex_wake(&mm_starter.tid, 1);
    for (;;) {
        uint32_t seen = __atomic_load_n(&mm_starter.word, __ATOMIC_SEQ_CST);
        start_due();
        sys(SYS_futex, &mm_starter.word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, seen, NULL);
    }
    return unused;
}

/* 0, or an error as the C library has it. */
static int begin_starter(void)
{
    pthread_t thread;
    uint64_t but_the_library_s = ~(3ull << (MM_MEMORY_SIGNAL - 1)), before;     /* the engine's is among those */
    if (mm_starter.tid)
        return 0;
    if (!mm_starter.timer) {
        size_t size = MM_TIMERS * sizeof *mm_starter.timer;
        void *room = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED)
            return EAGAIN;
        mm_starter.timer = room;
    }
    sys(SYS_rt_sigprocmask, SIG_SETMASK, &but_the_library_s, &before, 8);
    int r = pthread_create(&thread, NULL, starter, NULL);
    sys(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, 8);
    while (!r && !__atomic_load_n(&mm_starter.tid, __ATOMIC_ACQUIRE))
        sys_futex_wait(&mm_starter.tid, 0, 1000000);
    return r ? EAGAIN : 0;
}

static struct mm_thread_timer *free_timer(void)
{
    for (struct mm_thread_timer *t = mm_starter.timer; t < mm_starter.timer + mm_starter.high; t++)
        if (!t->used)
            return t;
    return mm_starter.high < MM_TIMERS ? mm_starter.timer + mm_starter.high++ : NULL;
}

/* Before glibc 2.34 the word is the address of a note: how it tells, and the kernel's number. */
static int number_of(timer_t timer)
{
    return (uintptr_t)timer <= INT32_MAX ? (int)(intptr_t)timer : ((const int *)timer)[1];
}

/* The caller's own, by its number: else it would be that of the thread that is told. */
static clockid_t clock_by_number(clockid_t clock)
{
    return clock == CLOCK_THREAD_CPUTIME_ID ? (clockid_t)(~(uint32_t)sys_gettid() << 3 | 6) : clock;
}

/* What the C library takes of attributes stands in their first words, up to the stack's size. */
#define TAKEN 40
static int make(struct mm_thread_timer *t, clockid_t clock, const struct sigevent *event, timer_t *timer)
{
    uint64_t value = ((t->due >> 32) + 1) << 32 | (uint64_t)(t - mm_starter.timer);
    struct sigevent tells = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = MM_MEMORY_SIGNAL }, real;
    tells.sigev_value.sival_ptr = (void *)value;
    tells._sigev_un._tid = (pid_t)mm_starter.tid;
    pthread_attr_init(&t->attributes);
    if (event->sigev_notify_attributes)
        memcpy(&t->attributes, event->sigev_notify_attributes, TAKEN);
    pthread_attr_setdetachstate(&t->attributes, PTHREAD_CREATE_DETACHED);
    t->function = event->sigev_notify_function;
    t->value = event->sigev_value;
    t->left = 0;
    __atomic_store_n(&t->due, value >> 32 << 32, __ATOMIC_SEQ_CST);
    int r = MM_NUMBERS(int, REAL(timer_create)(clock_by_number(clock), (struct sigevent *)mm_event_in(&tells, &real),
                                               &t->known));
    if (r == 0) {
        t->id = number_of(t->known);
        t->used = 1;
        *timer = t->known;
    }
    return r;
}

static int make_starting(clockid_t clock, struct sigevent *event, timer_t *timer)
{
    struct mm_thread_timer *t = NULL;
    pthread_mutex_lock(&of_timers);
    int error = begin_starter(), r = -1;
    if (error)
        errno = error;
    else if ((t = free_timer()))
        r = make(t, clock, event, timer);
    pthread_mutex_unlock(&of_timers);
    /* more than an image may have */
    return error || t ? r : MM_NUMBERS(int, REAL(timer_create)(clock, event, timer));
}

EXPORT int timer_create(clockid_t clock, struct sigevent *event, timer_t *timer)
{
    struct sigevent real;
    if (UNLIKELY(mm_memory_head) && event && event->sigev_notify == SIGEV_THREAD)
        return make_starting(clock, event, timer);
    return MM_NUMBERS(int, REAL(timer_create)(clock, (struct sigevent *)mm_event_in(event, &real), timer));
}

static struct mm_thread_timer *timer_found(timer_t timer)
{
    for (struct mm_thread_timer *t = mm_starter.timer; t && t < mm_starter.timer + mm_starter.high; t++)
        if (__atomic_load_n(&t->used, __ATOMIC_ACQUIRE) && t->known == timer)
            return t;
    return NULL;
}

EXPORT int timer_delete(timer_t timer)
{
    if (LIKELY(!mm_starter.timer) || !timer_found(timer))
        return REAL(timer_delete)(timer);
    pthread_mutex_lock(&of_timers);
    int r = REAL(timer_delete)(timer);
    struct mm_thread_timer *t = r == 0 ? timer_found(timer) : NULL;
    if (t)
        t->used = 0;
    pthread_mutex_unlock(&of_timers);
    return r;
}

/* A fork's: it has neither its parent's timers nor the thread. */
void mm_timers_in_child(void)
{
    if (!mm_starter.timer)
        return;
    pthread_mutex_init(&of_timers, NULL);
    mm_starter.tid = 0;
    mm_starter.thread = 0;
    for (struct mm_thread_timer *t = mm_starter.timer; t < mm_starter.timer + mm_starter.high; t++)
        t->used = 0;
}
