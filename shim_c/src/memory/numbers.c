/* numbers.c - process numbers in calls that a thread is in while an image is made.
 *
 * Programs know numbers that the kernel may not (area/known_numbers.c), and the wrappers give it its own.  A wait that our signal interrupted
 * begins anew from the signal's frame: in an image the number in it is the one that programs know, and in a process that runs it is the
 * kernel's.  No image is made while a thread holds a number of the kernel's in any other way.
 */
#include "memory/image_engine.h"

#include <errno.h>
#include <sys/wait.h>
#include <ucontext.h>

/* The register of a system call that is about to be made: for a child or a group of them (kind 0), or for an object of System V; a
 * word of 0: for any child, or one by its descriptor; NULL. */
static greg_t *number_of_wait(void *context, uint32_t *kind)
{
    static greg_t none;
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)r[REG_RIP];
    if ((uint64_t)r[REG_RAX] >= 4096 || at[0] != 0x0f || at[1] != 0x05)
        return 0;
    switch (r[REG_RAX]) {
    case SYS_semop:
    case SYS_semtimedop:
        *kind = MM_SYSV_SEM;
        return &r[REG_RDI];
    case SYS_msgsnd:
    case SYS_msgrcv:
        *kind = MM_SYSV_MSG;
        return &r[REG_RDI];
    case SYS_wait4:
        *kind = 0;
        return &r[REG_RDI];
    case SYS_waitid:
        *kind = 0;
        return r[REG_RDI] == P_PID || r[REG_RDI] == P_PGID ? &r[REG_RSI] : &none;
    default:
        return 0;
    }
}

/* Of processes only where the list is there; the sign says that it is a group's. */
static void renumber_wait(void *context, uint32_t (*process)(struct mm_area *, uint32_t),
                          int32_t (*object)(struct mm_area *, uint32_t, int32_t))
{
    uint32_t kind;
    greg_t *number = number_of_wait(context, &kind);
    int32_t n = number ? (int32_t)*number : 0;
    if (number && kind)
        *number = object(mm_area, kind, n);
    else if (n > 0 && mm_area->head->tree.count)
        *number = (greg_t)process(mm_area, (uint32_t)n);
    else if (n < -1 && mm_area->head->tree.count)
        *number = -(greg_t)process(mm_area, (uint32_t)-n);
}

void mm_numbers_known(void *context) { renumber_wait(context, mm_known_number, mm_sysv_known); }
void mm_numbers_real(void *context) { renumber_wait(context, mm_real_number, mm_sysv_real); }

/* It takes no number, and has none yet: it is about to be made, or was interrupted. */
static int waits_for_signals(const void *context)
{
    const greg_t *r = ((const ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)r[REG_RIP] - (r[REG_RAX] == -EINTR ? 2 : 0);
    return mm_wait.number == SYS_rt_sigtimedwait && (r[REG_RAX] == SYS_rt_sigtimedwait || r[REG_RAX] == -EINTR)
        && at[0] == 0x0f && at[1] == 0x05;
}

/* Between the number's translation and its use, or the other way round. */
int mm_numbers_under_way(const void *context)
{
    const greg_t *r = ((const ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)r[REG_RIP];
    uint32_t kind;
    if (mm_numbers == MM_NUMBER_GIVEN && r[REG_RAX] == 0 && at[-2] == 0x0f && at[-1] == 0x05)
        return 0;
    return mm_numbers && !number_of_wait((void *)context, &kind) && !waits_for_signals(context);
}

/* Has some process of the run come back? */
int mm_have_come_back(void) { return mm_memory_head && mm_memory_head->tree.count; }

pid_t mm_number_out(pid_t real)
{
    return !mm_have_come_back() || real <= 0 ? real : (pid_t)mm_known_number(mm_area, (uint32_t)real);
}

int mm_has_sender(int code) { return code == SI_USER || code == SI_TKILL || code == SI_QUEUE || code == SI_MESGQ; }

/* Whose signal it is. */
void mm_sender_out(siginfo_t *info)
{
    if (mm_has_sender(info->si_code) || info->si_signo == SIGCHLD)
        info->si_pid = mm_number_out(info->si_pid);
}

/* Of a process, or negative of a group. */
pid_t mm_number_in(pid_t known)
{
    if (!mm_have_come_back() || known == 0 || known == -1)
        return known;
    return known < 0 ? -(pid_t)mm_real_number(mm_area, (uint32_t)-known) : (pid_t)mm_real_number(mm_area, (uint32_t)known);
}

uint32_t mm_program_tid(uint32_t real, uint64_t fs)
{
    struct mm_engine *e = ENGINE;
    for (uint32_t i = 0; i < e->renamed_count; i++)
        if (e->renamed[i].real == real && e->renamed[i].fs == fs)
            return e->renamed[i].known;
    return real;
}

/* All threads stand.  Of one that was not asked, in a process that comes back stopped, nothing is newer than the restart. */
uint32_t mm_known_tid_of(uint32_t real)
{
    struct mm_engine *e = ENGINE;
    for (uint32_t i = 1; i <= e->asked; i++)           /* who ended before it stood has left its place */
        if (e->signalled[i] == real)
            return e->thread[i].tid;
    if (real == (uint32_t)sys_gettid()) {
        uint64_t fs = 0;
        sys(SYS_arch_prctl, 0x1003, &fs);
        return mm_program_tid(real, fs);
    }
    for (uint32_t i = 0; i < e->renamed_count; i++)
        if (e->renamed[i].real == real)
            return e->renamed[i].known;
    return real;
}
