/* numbers.c - process numbers in calls that a thread is in while an image is made.
 *
 * Programs know numbers that the kernel may not (area/pid_numbers.c), and the wrappers give it its own.  A wait that our signal interrupted
 * begins anew from the signal's frame: in an image the number in it is the one that programs know, and in a process that runs it is the
 * kernel's.  No image is made while a thread holds a number of the kernel's in any other way.
 */
#include "memory/engine.h"

#include <sys/wait.h>
#include <ucontext.h>

struct mm_memory *mm_my_memory;

/* The register of a system call that is about to be made, for a child or a group of them; NULL. */
static greg_t *number_of_wait(void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)r[REG_RIP];
    if (r[REG_RAX] != SYS_wait4 && r[REG_RAX] != SYS_waitid)
        return 0;
    if (at[0] != 0x0f || at[1] != 0x05)
        return 0;
    if (r[REG_RAX] == SYS_wait4)
        return &r[REG_RDI];
    return r[REG_RDI] == P_PID || r[REG_RDI] == P_PGID ? &r[REG_RSI] : 0;
}

/* Only where the list is there; the sign says that it is a group's. */
static void renumber_wait(void *context, uint32_t (*other)(struct mm_area *, uint32_t))
{
    greg_t *number = mm_area->head->tree.count ? number_of_wait(context) : 0;
    int32_t n = number ? (int32_t)*number : 0;
    if (n > 0)
        *number = (greg_t)other(mm_area, (uint32_t)n);
    else if (n < -1)
        *number = -(greg_t)other(mm_area, (uint32_t)-n);
}

void mm_numbers_known(void *context) { renumber_wait(context, mm_known_number); }
void mm_numbers_real(void *context) { renumber_wait(context, mm_real_number); }

/* Between the number's translation and its use, or the other way round. */
int mm_numbers_under_way(const void *context) { return mm_numbers && !number_of_wait((void *)context); }

/* Has some process of the run come back? */
int mm_have_come_back(void) { return mm_memory_head && mm_memory_head->tree.count; }

pid_t mm_number_out(pid_t real)
{
    return !mm_have_come_back() || real <= 0 ? real : (pid_t)mm_known_number(mm_area, (uint32_t)real);
}

/* Of a process, or negative of a group. */
pid_t mm_number_in(pid_t known)
{
    if (!mm_have_come_back() || known == 0 || known == -1)
        return known;
    return known < 0 ? -(pid_t)mm_real_number(mm_area, (uint32_t)-known) : (pid_t)mm_real_number(mm_area, (uint32_t)known);
}
