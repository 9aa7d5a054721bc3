/* wrap_sysv.c - shared memory, semaphores and message queues of System V: which of them a run with memory uses, and by which numbers
 * (area/sysv_numbers.c).
 *
 * As in wrap_pid.c, no image is made while a call has a number of the kernel's in hand, but for one that waits (memory/numbers.c).
 * semop, semtimedop, msgsnd and msgrcv wait and are in wrap_blocking.c.  In a run without memory each is the libc's own.
 */
#include "calls/calls.h"
#include "memory/engine.h"

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
