/* metamori.h - checkpoints of a program's files, from inside the program.
 *
 * The preload library does the work.  The definitions below are weak and look for it when they are called, so a
 * program built with this header also links and runs without Metamori, and is then told so (-1, ENOSYS;
 * metamori_active() gives 0).  Before glibc 2.34, link with -ldl (metamori config --libs).
 */
#ifndef METAMORI_H
#define METAMORI_H

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

__attribute__((weak)) int metamori_forward_(const char *name, int argument)
{
    int (*call)(int);
    void *found = dlsym(NULL /* RTLD_DEFAULT */, name);
    if (!found) {
        errno = ENOSYS;
        return -1;
    }
    __builtin_memcpy(&call, &found, sizeof call);
    return call(argument);
}

/* Take a checkpoint of the whole run: files, names, descriptors and streams of all its processes at one instant.
 * The calling process's output streams are flushed first.
 * Returns the new index (>= 1), or -1 with errno: EAGAIN (a process of the run does not come to rest), ENOSPC, EIO,
 * EACCES (a file may not be read), EOPNOTSUPP (run --memory: it has something that cannot come back),
 * EBUSY (in a child of vfork), ESRCH (run --memory: `metamori run` has been killed), ENOSYS (not under Metamori).
 * Returns 0 when the program comes back here with its memory: by `metamori restart`, or by metamori_restore. */
__attribute__((weak)) int metamori_checkpoint(void)
{
    return metamori_forward_("metamori_v1_checkpoint", 0);
}

/* Go back (or forward) to checkpoint INDEX: files, names, descriptor numbers, FILE pointers and their positions.
 * Returns 0, or -1 with errno: EINVAL (no such checkpoint), ESRCH (this process took no part in it),
 * EBUSY (other processes of the run are alive; in a job, or a child of vfork; run --memory: others have its address, lock
 * or name), EAGAIN (a thread does not come to rest), EXDEV (the store is on another filesystem),
 * ENOENT (an untracked file that was open then is gone), EACCES (a file may not be read), EMFILE (more
 * descriptors were open than it can put back), ENOMEM, ENOSPC, EIO, ENOSYS (not under Metamori).
 * In a run with --memory it does not return: memory goes back too, and metamori_checkpoint returns 0 there. */
__attribute__((weak)) int metamori_restore(int index)
{
    return metamori_forward_("metamori_v1_restore", index);
}

/* 1 when the program runs under Metamori, else 0. */
__attribute__((weak)) int metamori_active(void)
{
    int before = errno;
    int active = metamori_forward_("metamori_v1_active", 0) > 0;
    errno = before;
    return active;
}

#ifdef __cplusplus
}
#endif
#endif
