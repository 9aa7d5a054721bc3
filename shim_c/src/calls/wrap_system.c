/* wrap_system.c - commands that a shell carries out: system, popen, pclose.
 *
 * In a run with memory system() is done here: the libc's own waits by calls that no wrapper sees, and compares the number that it was
 * given with the kernel's, which is another one when the process has come back.
 */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

/* How many threads are in it: the first makes SIGINT and SIGQUIT be ignored, the last ends that. */
MM_PROGRAM_STATE static pthread_mutex_t ignoring = PTHREAD_MUTEX_INITIALIZER;
MM_PROGRAM_STATE static int within;
MM_PROGRAM_STATE static struct sigaction interrupt, quit;

static void cut_short(void *child);
/* pthread_setspecific: the child is what a thread leaves there that ends while it waits for it */
MM_PROGRAM_STATE static int (*note)(pthread_key_t key, const void *child);
MM_PROGRAM_STATE static pthread_key_t waited_for;

static void find_note(void)
{
    int (*create)(pthread_key_t *, void (*)(void *)) = REAL(dlsym)(RTLD_DEFAULT, "pthread_key_create");
    if (create && create(&waited_for, cut_short) == 0)
        note = REAL(dlsym)(RTLD_DEFAULT, "pthread_setspecific");
}

static void ignore_begin(void)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    pthread_mutex_lock(&ignoring);
    if (!note)
        find_note();
    if (within++ == 0) {
        sigaction(SIGINT, &ignore, &interrupt);
        sigaction(SIGQUIT, &ignore, &quit);
    }
    pthread_mutex_unlock(&ignoring);
}

static void ignore_end(void)
{
    pthread_mutex_lock(&ignoring);
    if (--within == 0) {
        sigaction(SIGINT, &interrupt, NULL);
        sigaction(SIGQUIT, &quit, NULL);
    }
    pthread_mutex_unlock(&ignoring);
}

/* A thread that was cancelled: as the libc's own does then. */
static void cut_short(void *child)
{
    kill((pid_t)(intptr_t)child, SIGKILL);
    while (waitpid((pid_t)(intptr_t)child, NULL, 0) < 0 && errno == EINTR) {
    }
    ignore_end();
}

static int wait_for_shell(pid_t child, int *status)
{
    pid_t r;
    if (note)
        note(waited_for, (void *)(intptr_t)child);
    while ((r = waitpid(child, status, 0)) < 0 && errno == EINTR) {
    }
    if (note)
        note(waited_for, NULL);
    return r == child;
}

static int run_shell(const char *command, const sigset_t *mask)
{
    char *words[] = { "sh", "-c", (char *)command, NULL };
    posix_spawnattr_t attributes;
    sigset_t defaults;
    pid_t child;
    int status = 127 << 8;                 /* as of a shell that cannot be executed */
    sigemptyset(&defaults);
    if (interrupt.sa_handler != SIG_IGN)
        sigaddset(&defaults, SIGINT);
    if (quit.sa_handler != SIG_IGN)
        sigaddset(&defaults, SIGQUIT);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, mask);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int error = posix_spawn(&child, "/bin/sh", NULL, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    if (error == 0 && !wait_for_shell(child, &status))
        return -1;
    if (error != 0)
        errno = error;
    return status;
}

static int in_shell(const char *command)
{
    sigset_t chld, before;
    ignore_begin();
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, &before);
    int status = run_shell(command, &before), saved = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    ignore_end();
    errno = saved;
    return status;
}

/* The number that popen noted lies behind the stream's table of operations (glibc's struct _IO_proc_file). */
static pid_t *noted_child(FILE *stream) { return (pid_t *)((char *)stream + sizeof(FILE) + sizeof(void *)); }

/* glibc's system and popen start a shell with environ as it is: for the time of the call ours are in it. */
static char **lent(struct mm_exec *image)
{
    char **before = environ;
    active();
    mm_before_exec(image, AT_FDCWD, "/bin/sh", 0, environ, 0);
    if (image->outside)
        mm_outsider_for_good(1, "/bin/sh cannot be tracked. The files of what it starts are not checkpointed");
    image->outside = 0;
    if (image->made)
        environ = (char **)image->envp;
    return before;
}

static void taken_back(struct mm_exec *image, char **before)
{
    if (image->made && environ == image->envp)   /* else a setenv meanwhile has made another of it, which stays */
        environ = before;
    else
        image->made = NULL;
    mm_exec_failed(image);
}

EXPORT int system(const char *command)
{
    struct mm_exec image;
    if (!command)
        return REAL(system)(command);
    if (UNLIKELY(mm_memory_head != NULL))
        return in_shell(command);
    char **before = lent(&image);
    int r = REAL(system)(command);
    taken_back(&image, before);
    return r;
}

EXPORT FILE *popen(const char *command, const char *mode)
{
    struct mm_exec image;
    char **before = lent(&image);
    uint32_t numbers = mm_numbers;
    mm_numbers = mm_memory_head != NULL;   /* brought back with the kernel's number, it would take that for one that it knows */
    FILE *f = REAL(popen)(command, mode);
    if (UNLIKELY(mm_memory_head != NULL) && f)
        *noted_child(f) = mm_number_out(*noted_child(f));
    mm_numbers = numbers;
    if (f)
        mm_started(*noted_child(f), environ);
    taken_back(&image, before);
    return f;
}

EXPORT int pclose(FILE *stream)
{
    if (LIKELY(!mm_memory_head) || !stream)
        return REAL(pclose)(stream);
    fflush(stream);                        /* which can take long: no number is in hand meanwhile */
    uint32_t numbers = mm_numbers;
    mm_numbers = 1;
    *noted_child(stream) = mm_number_in(*noted_child(stream));
    int status = REAL(pclose)(stream);
    mm_numbers = numbers;
    return status;
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_shell(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
