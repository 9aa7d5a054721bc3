/* wrap_process.c - beginnings and ends of processes. */
#include "calls/calls.h"
#include "memory/engine.h"

#include <sched.h>

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

/* Process numbers, the table of descriptors or the folders are about to become other ones. */
void mm_other_world(unsigned long flags)
{
    if (!active())
        return;
    if (flags & CLONE_NEWPID)
        mm_outsider_for_good(3, NAMESPACE);
    if ((flags & CLONE_FILES) && mm_first_time(4))
        mm_say("a thread or process has a table of descriptors that is not its memory's: it is not tracked");
    if (flags & CLONE_NEWNS)
        mm_elsewhere = 1;
}

/* A process with memory of its own begins in a function; one in our memory is no more than a thread to us. */
struct beginning {
    int (*function)(void *);
    void *argument;
};

static int begin_apart(void *data)
{
    struct beginning *b = data;
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
    mm_other_world((flags & (CLONE_NEWPID | CLONE_NEWNS)) | (shares_files && !shares_memory ? CLONE_FILES : 0));
    if (shares_memory) {
        mm_cloned = 1;
        if (!shares_files)
            mm_memory_shared = 1;
        return REAL(clone)(function, stack, flags, argument, parent_tid, tls, child_tid);
    }
    struct beginning b = { function, argument };
    mm_fork_begin();
    int r = mm_number_out(REAL(clone)(begin_apart, stack, flags, &b, parent_tid, tls, child_tid));
    mm_fork_in_parent();
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
    mm_other_world(flags & (CLONE_NEWPID | CLONE_NEWNS | CLONE_FILES));
    return REAL(unshare)(flags);
}

EXPORT int setns(int fd, int type)
{
    mm_other_world((type & CLONE_NEWPID) | CLONE_NEWNS);   /* a pidfd may mean several */
    return REAL(setns)(fd, type);
}

EXPORT int chroot(const char *path)
{
    int r = REAL(chroot)(path);
    if (r == 0)
        mm_elsewhere = 1;
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
    return (int)limit_end(&c, REAL(prlimit)(pid, resource, limit, old));
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
