/* wrap_temp.c - temporary files and shared memory: glibc makes both by internal calls, so the names are made here and opened
 * by ours. */
#include "calls/calls.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>

static int make_temporary(char *pattern, int suffix, int flags, int folder)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t n = strlen(pattern);
    if (suffix < 0 || n < 6u + suffix || memcmp(pattern + n - suffix - 6, "XXXXXX", 6) != 0) {
        errno = EINVAL;
        return -1;
    }
    char *x = pattern + n - suffix - 6;
    int saved = errno;
    for (int tries = 0; tries < 62 * 62 * 62; tries++) {
        uint64_t random = 0;
        if (sys(SYS_getrandom, &random, sizeof random, GRND_NONBLOCK) < 0)
            random = (uint64_t)(uintptr_t)&random ^ (uint64_t)tries * 0x9e3779b97f4a7c15ull ^ (uint64_t)sys_gettid() << 32;
        for (int i = 0; i < 6; i++, random /= 62)
            x[i] = letters[random % 62];
        int r = folder ? mkdir(pattern, 0700) : open(pattern, (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL, 0600);
        if (r >= 0 || errno != EEXIST) {
            if (r >= 0)
                errno = saved;
            return r;
        }
    }
    return -1;
}

EXPORT int mkostemps(char *pattern, int suffix, int flags) { return make_temporary(pattern, suffix, flags, 0); }
EXPORT int mkstemps(char *pattern, int suffix) { return make_temporary(pattern, suffix, 0, 0); }
EXPORT int mkostemp(char *pattern, int flags) { return make_temporary(pattern, 0, flags, 0); }
EXPORT int mkstemp(char *pattern) { return make_temporary(pattern, 0, 0, 0); }
EXPORT char *mkdtemp(char *pattern) { return make_temporary(pattern, 0, 0, 1) < 0 ? NULL : pattern; }

EXPORT FILE *tmpfile(void)
{
    int fd = open("/tmp", O_RDWR | O_TMPFILE, 0600);
    if (fd < 0) {
        char pattern[] = "/tmp/tmpfXXXXXX";
        fd = mkstemp(pattern);
        if (fd >= 0)
            unlink(pattern);
    }
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w+");
    if (!f && fd >= 0)
        close(fd);
    return f;
}

/* A name of shared memory is one in /dev/shm; 0: none, or not in the scope, where --track alone puts it. */
static int in_shared_memory(const char *name, char path[NAME_MAX + 16])
{
    while (*name == '/')
        name++;
    size_t n = strlen(name);
    if (!following() || !n || n >= NAME_MAX || strchr(name, '/'))
        return 0;
    strcpy(stpcpy(path, "/dev/shm/"), name);
    return mm_tracked(path);
}

EXPORT int shm_open(const char *name, int flags, mode_t mode)
{
    char path[NAME_MAX + 16];
    int before, fd;
    if (LIKELY(!in_shared_memory(name, path)))
        return REAL(shm_open)(name, flags, mode);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 && errno == EISDIR)
        errno = EINVAL;
    pthread_setcancelstate(before, NULL);
    return fd;
}

EXPORT int shm_unlink(const char *name)
{
    char path[NAME_MAX + 16];
    if (LIKELY(!in_shared_memory(name, path)))
        return REAL(shm_unlink)(name);
    int r = unlink(path);
    if (r < 0 && errno == EPERM)
        errno = EACCES;
    return r;
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_temp(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
