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
    return REAL(execve)(path, argv, envp);
}

EXPORT void _exit(int status)
{
    if (active())
        mm_last_out();
    REAL(_exit)(status);
    __builtin_unreachable();
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_process(alias, name) SYMBOL_ALIAS(alias, name)
#include "aliases.h"
