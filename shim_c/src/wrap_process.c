/* wrap_process.c - beginnings and ends of processes. */
#include "shim.h"

/* A vfork child works in its parent's memory: its close() would empty the parent's table. */
EXPORT pid_t vfork(void)
{
    extern pid_t fork(void);
    return fork();
}

/* A program file with redirected bytes is run by the kernel from its home: put them there. */
EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
    if (active() && __atomic_load_n(&mm_area->head->virtual_count, __ATOMIC_ACQUIRE)) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        uint32_t slot = fd >= 0 ? pif_of(fd) : 0;
        if (slot && !is_native(mm_pif_at(mm_area, slot))) {
            enter();
            mm_settle(slot, fd);
            leave();
        }
        if (fd >= 0)
            close(fd);
    }
    if (active())
        for (int fd = 0; fd <= mm_top_fd; fd++)
            if (mm_fds[fd].fit)
                mm_give_position(fd);
    return REAL(execve)(path, argv, envp);
}

EXPORT void _exit(int status)
{
    if (active())
        mm_last_out();
    REAL(_exit)(status);
    __builtin_unreachable();
}

/* The file size limit, asked for once and again when the program may have set it. */
uint64_t mm_size_limit;

EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
    int r = REAL(setrlimit)(resource, limit);
    mm_size_limit = 0;
    return r;
}
EXPORT long ulimit(int what, ...)
{
    va_list list;
    va_start(list, what);
    long value = va_arg(list, long);
    va_end(list);
    long r = REAL(ulimit)(what, value);
    mm_size_limit = 0;
    return r;
}
EXPORT int vlimit(enum __vlimit_resource resource, int value)
{
    int r = REAL(vlimit)(resource, value);
    mm_size_limit = 0;
    return r;
}
EXPORT int prlimit(pid_t pid, enum __rlimit_resource resource, const struct rlimit *limit, struct rlimit *old)
{
    int r = REAL(prlimit)(pid, resource, limit, old);
    mm_size_limit = 0;
    return r;
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_process(alias, name) SYMBOL_ALIAS(alias, name)
#include "aliases.h"
