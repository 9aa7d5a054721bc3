/* wrap_exec.c - new programs: glibc's exec functions reach the kernel by internal calls, so each has a wrapper. */
#include "calls/calls.h"
#include "process/call_filter.h"

#include <stdlib.h>

extern char **environ;

/* 0: it is not executed, and errno says why. */
static int before_image(struct mm_exec *image, int dir, const char *path, int flags, char *const envp[])
{
    active();
    mm_before_exec(image, dir, path, flags, envp, 1);
    if (image->limited)                    /* this process becomes another, not one that shares its memory */
        mm_memory_before_exec(image->outside);
    if (image->refused)
        fail(image->refused);
    return !image->refused;
}

static void failed(struct mm_exec *image)
{
    if (image->limited)
        mm_memory_exec_failed();
    mm_exec_failed(image);
}

static int run(const char *path, char *const argv[], char *const envp[])
{
    struct mm_exec image;
    int r = !before_image(&image, AT_FDCWD, path, 0, envp) ? -1
          : image.shown ? (int)result(sys(SYS_execve, path, argv, image.envp, MM_LOOKED_AT)) : REAL(execve)(path, argv, image.envp);
    failed(&image);
    return r;
}

EXPORT int execve(const char *path, char *const argv[], char *const envp[]) { return run(path, argv, envp); }
EXPORT int execv(const char *path, char *const argv[]) { return run(path, argv, environ); }

EXPORT int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
    struct mm_exec image;
    int r = !before_image(&image, dir, path, flags, envp) ? -1 : REAL(execveat)(dir, path, argv, image.envp, flags);
    failed(&image);
    return r;
}

EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
    struct mm_exec image;
    int r = !before_image(&image, fd, "", AT_EMPTY_PATH, envp) ? -1 : REAL(fexecve)(fd, argv, image.envp);
    failed(&image);
    return r;
}

const char *mm_search_list(void) { return getenv("PATH") ?: "/bin:/usr/bin"; }

/* The next file that a search along *list finds, which becomes what is left of it; NULL: none. */
const char *mm_search_on(const char *file, const char **list, char *out, size_t room)
{
    struct stat st;
    size_t length = strlen(file);
    while (*list) {
        const char *folder = *list;
        size_t n = strcspn(folder, ":");
        *list = folder[n] ? folder + n + 1 : NULL;
        if (n + length + 2 > room)
            continue;
        memcpy(out, folder, n);
        if (n)
            out[n++] = '/';
        memcpy(out + n, file, length + 1);
        if (sys(SYS_newfstatat, AT_FDCWD, out, &st, 0) == 0 && S_ISREG(st.st_mode)
            && sys(SYS_faccessat, AT_FDCWD, out, X_OK) == 0)
            return out;
    }
    return NULL;
}

/* Which file a search along PATH ends at; file itself when it is none. */
const char *mm_searched(const char *file, char *out, size_t room)
{
    const char *list = mm_search_list();
    return !file || !*file || strchr(file, '/') ? file : mm_search_on(file, &list, out, room) ?: file;
}

static int run_searched(const char *file, char *const argv[], char *const envp[])
{
    struct mm_exec image;
    SCRATCH(found);
    int r = !before_image(&image, AT_FDCWD, mm_searched(file, found, 4096), 0, envp) ? -1 : REAL(execvpe)(file, argv, image.envp);
    failed(&image);
    return r;
}

EXPORT int execvp(const char *file, char *const argv[]) { return run_searched(file, argv, environ); }
EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
    return run_searched(file, argv, envp);
}

/* The words of an argument list, and where there is one the environment behind them. */
static int run_list(int (*how)(const char *, char *const[], char *const[]), const char *path, const char *first, va_list *list,
                    int with_environment)
{
    va_list counted;
    size_t n = 1;
    va_copy(counted, *list);
    while (first && va_arg(counted, char *))
        n++;
    va_end(counted);
    char *argv[n + 1];
    argv[0] = (char *)first;               /* NULL ends the list */
    for (size_t i = 1; first && i <= n; i++)
        argv[i] = va_arg(*list, char *);
    return how(path, argv, with_environment ? va_arg(*list, char *const *) : environ);
}

EXPORT int execl(const char *path, const char *first, ...)
{
    va_list list;
    va_start(list, first);
    int r = run_list(run, path, first, &list, 0);
    va_end(list);
    return r;
}

EXPORT int execlp(const char *file, const char *first, ...)
{
    va_list list;
    va_start(list, first);
    int r = run_list(run_searched, file, first, &list, 0);
    va_end(list);
    return r;
}

EXPORT int execle(const char *path, const char *first, ...)
{
    va_list list;
    va_start(list, first);
    int r = run_list(run, path, first, &list, 1);
    va_end(list);
    return r;
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_exec(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
