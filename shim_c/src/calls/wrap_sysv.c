/* wrap_sysv.c - shared memory, semaphores and message queues of System V: which of them a run with memory uses, and by which numbers
 * (area/known_numbers.c); message queues of POSIX: by which names, and what a process asked to be told when a message comes.
 *
 * As in wrap_pid.c, no image is made while a call has a number of the kernel's in hand, but for one that waits (memory/numbers.c).
 * semop, semtimedop, msgsnd and msgrcv wait and are in wrap_blocking.c.  In a run without memory each is the libc's own.
 */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <limits.h>
#include <stdio.h>

/* Of an object that a call made or found: the program's number. */
static int got(uint32_t kind, int real)
{
    struct mm_sysv *o = real < 0 ? NULL : mm_sysv_note(mm_area, kind, real);
    return o ? o->known : real;
}

#define GETS(kind, call) (LIKELY(!mm_memory_head) ? (call) : MM_NUMBERS(int, got(kind, (call))))

EXPORT int shmget(key_t key, size_t size, int flags) { return GETS(MM_SYSV_SHM, REAL(shmget)(key, size, flags)); }
EXPORT int semget(key_t key, int count, int flags) { return GETS(MM_SYSV_SEM, REAL(semget)(key, count, flags)); }
EXPORT int msgget(key_t key, int flags) { return GETS(MM_SYSV_MSG, REAL(msgget)(key, flags)); }

static void *attached(int id, const void *at, int flags)
{
    int real = mm_sysv_real(mm_area, MM_SYSV_SHM, id);
    void *p = REAL(shmat)(real, at, flags);
    if (p != (void *)-1)
        mm_sysv_note(mm_area, MM_SYSV_SHM, real);
    return p;
}

EXPORT void *shmat(int id, const void *at, int flags)
{
    return LIKELY(!mm_memory_head) ? REAL(shmat)(id, at, flags) : MM_NUMBERS(void *, attached(id, at, flags));
}

/* To look at the kernel's table, or at an object by its place there: of each kind STAT, INFO and STAT_ANY, whose numbers are other
 * commands of another kind. */
static int is_of_table(uint32_t kind, int command)
{
    int first = kind == MM_SYSV_SHM ? SHM_STAT : kind == MM_SYSV_SEM ? SEM_STAT : MSG_STAT;
    return command == IPC_INFO || (command >= first && command <= first + 2);
}

static int controlled(uint32_t kind, int real, int command, int r)
{
    if (r < 0)
        return r;
    if (is_of_table(kind, command))
        return r;
    struct shmid_ds memory;                /* which lives as long as somebody has it mapped */
    mm_sysv_note(mm_area, kind, real);
    if (command == IPC_RMID && (kind != MM_SYSV_SHM || sys(SYS_shmctl, real, IPC_STAT, &memory) < 0))
        mm_sysv_forget(mm_area, kind, real);
    return r;
}

#define CONTROLS(kind, call, id, command) ({ \
    int real_ = is_of_table(kind, command) ? (id) : mm_sysv_real(mm_area, kind, id); \
    controlled(kind, real_, command, call(real_)); \
    })

EXPORT int shmctl(int id, int command, struct shmid_ds *what)
{
#define MAKE(real) REAL(shmctl)(real, command, what)
    return LIKELY(!mm_memory_head) ? MAKE(id) : MM_NUMBERS(int, CONTROLS(MM_SYSV_SHM, MAKE, id, command));
#undef MAKE
}

EXPORT int msgctl(int id, int command, struct msqid_ds *what)
{
#define MAKE(real) REAL(msgctl)(real, command, what)
    return LIKELY(!mm_memory_head) ? MAKE(id) : MM_NUMBERS(int, CONTROLS(MM_SYSV_MSG, MAKE, id, command));
#undef MAKE
}

EXPORT int semctl(int id, int number, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *what = va_arg(list, void *);
    va_end(list);
#define MAKE(real) REAL(semctl)(real, number, command, what)
    return LIKELY(!mm_memory_head) ? MAKE(id) : MM_NUMBERS(int, CONTROLS(MM_SYSV_SEM, MAKE, id, command));
#undef MAKE
}

/* -- message queues of POSIX */

/* name: what stands behind the slash, which the kernel is not told */
long mm_queue_opened(const char *name, long fd)
{
    char whole[NAME_MAX + 2];
    struct stat st;
    if (fd >= 0 && sys(SYS_fstat, fd, &st) == 0) {
        snprintf(whole, sizeof whole, "/%s", name);
        mm_queue_note(mm_area, st.st_ino, whole);
    }
    return fd;
}

#define OPENED(name, call) MM_NUMBERS(mqd_t, (mqd_t)mm_queue_opened((name) + 1, (call)))

EXPORT mqd_t mq_open(const char *name, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = va_arg(list, mode_t);
    void *attributes = va_arg(list, void *);
    va_end(list);
    return LIKELY(!mm_memory_head) ? REAL(mq_open)(name, flags, mode, attributes)
                                   : OPENED(name, REAL(mq_open)(name, flags, mode, attributes));
}

EXPORT mqd_t __mq_open_2(const char *name, int flags)
{
    return LIKELY(!mm_memory_head) ? REAL(__mq_open_2)(name, flags) : OPENED(name, REAL(__mq_open_2)(name, flags));
}

/* Those of this name that were noted before the call are gone after it; what the name leads to then may be noted already. */
static int queue_unlinked(const char *name)
{
    struct mm_queue *queue = mm_area->head->tree.queue;
    uint32_t before[MM_QUEUES];
    for (uint32_t i = 0; i < MM_QUEUES; i++)
        before[i] = __atomic_load_n(&queue[i].state, __ATOMIC_ACQUIRE);
    int r = REAL(mq_unlink)(name);
    for (uint32_t i = 0; i < MM_QUEUES && r == 0; i++)
        if ((before[i] & 3) == 2 && !queue[i].waits && strcmp(queue[i].name, name) == 0)
            mm_queue_forget(mm_area, i, before[i]);
    return r;
}

EXPORT int mq_unlink(const char *name)
{
    return LIKELY(!mm_memory_head) ? REAL(mq_unlink)(name) : MM_NUMBERS(int, queue_unlinked(name));
}

static int told(mqd_t fd, const struct sigevent *event, int r)
{
    struct stat st;
    struct mm_queue *q = r == 0 && event && sys(SYS_fstat, fd, &st) == 0 ? mm_queue_note(mm_area, st.st_ino, "") : NULL;
    if (q) {
        q->value = (uint64_t)event->sigev_value.sival_ptr;
        __atomic_store_n(&q->waits, (uint32_t)sys_getpid(), __ATOMIC_RELEASE);
    }
    return r;
}

EXPORT int mq_notify(mqd_t fd, const struct sigevent *event)
{
    return LIKELY(!mm_memory_head) ? REAL(mq_notify)(fd, event) : MM_NUMBERS(int, told(fd, event, REAL(mq_notify)(fd, event)));
}
