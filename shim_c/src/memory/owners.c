/* owners.c - whom descriptors signal (F_SETOWN, F_SETSIG, O_ASYNC), as the kernel says: noted in an image, and told to it again.
 *
 * Every process notes all of its descriptors, and tells of them: what several have open is told more than once.  A thread is known by
 * its own process only.
 */
#include "memory/image_engine.h"

#include <fcntl.h>
#include <linux/kcmp.h>

#define MOST 256
#define ROOM 65536                         /* of names that the kernel gives at once */
#define STANDARD 3                         /* those below are given by whoever continues */

struct signals { int32_t fd, type, known; uint16_t number, async; };
static __attribute__((section("mm_program"))) struct { uint64_t count; struct signals of[MOST]; } owners;

static int owned_by(int type, uint32_t process, pid_t number)
{
    return type == F_OWNER_PGRP ? sys(SYS_getpgid, process) == number
         : type == F_OWNER_TID ? sys(SYS_tgkill, process, number, 0) != -ESRCH : (pid_t)process == number;
}

/* The kernel's number of the process, 0: of none of the run. */
static uint32_t process_of(const struct f_owner_ex *owner)
{
    for (uint32_t i = 1; i < mm_memory_head->process_high; i++) {
        uint32_t process = __atomic_load_n(&mm_proc(mm_area, i)->pid, __ATOMIC_ACQUIRE);
        if (process && owned_by(owner->type, process, owner->pid))
            return process;
    }
    return 0;
}

/* As the programs know it; 0: nobody whom this process is to name. */
static int32_t known_of(const struct f_owner_ex *owner)
{
    if (owner->type != F_OWNER_TID)
        return (int32_t)mm_known_number(mm_area, (uint32_t)owner->pid);
    return owned_by(F_OWNER_TID, (uint32_t)sys_getpid(), owner->pid) ? (int32_t)mm_known_tid_of((uint32_t)owner->pid) : 0;
}

/* NULL, or why it cannot come back. */
static const char *note_owner(int fd)
{
    struct f_owner_ex owner = { F_OWNER_PID, 0 };
    long r = sys(SYS_fcntl, fd, F_GETOWN_EX, &owner), number = sys(SYS_fcntl, fd, F_GETSIG), flags = sys(SYS_fcntl, fd, F_GETFL);
    if (number < 0 || flags < 0 || (!(r == 0 && owner.pid) && !number && !(flags & O_ASYNC)))
        return 0;
    if (owner.type == F_OWNER_PID && owner.pid && mm_ended("/proc/", (uint32_t)owner.pid))
        owner.pid = 0;
    uint32_t process = owner.pid ? process_of(&owner) : 0, own = (uint32_t)sys_getpid();
    if (owner.pid && !process)
        return fd < STANDARD ? 0 : "it has a descriptor that signals a process which is not of the run (F_SETOWN)";
    if (owner.type == F_OWNER_TID && process && process != own && sys(SYS_kcmp, own, process, KCMP_FILE, fd, fd))
        return "it has a descriptor that signals a thread of a process which does not have it (F_SETOWN_EX)";
    if (owners.count == MOST)
        return "it has more than 256 descriptors that signal";
    owners.of[owners.count++] = (struct signals){ fd, owner.type, owner.pid ? known_of(&owner) : 0, (uint16_t)number, (flags & O_ASYNC) != 0 };
    return 0;
}

const char *mm_owners_note(void)
{
    char *names = ENGINE->maps;
    const char *why = 0;
    owners.count = 0;
    if (!mm_memory_head->tree.signals)
        return 0;
    long n, folder = sys_openat(AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (folder < 0)
        return "nobody can tell whom its descriptors signal";
    while (!why && (n = sys(SYS_getdents64, folder, names, ROOM)) > 0)
        for (const char *entry = names; !why && entry < names + n; entry += *(const uint16_t *)(entry + 16)) {
            const char *digits = entry + 19;
            why = *digits == '.' ? 0 : note_owner((int)own_number(&digits, 10));
        }
    sys_close((int)folder);
    return why;
}

static void tell(const struct signals *of)
{
    uint32_t real = of->type == F_OWNER_TID ? mm_real_tid((uint32_t)of->known) : mm_real_number(mm_area, (uint32_t)of->known);
    struct f_owner_ex owner = { of->type, (pid_t)real };
    long r = of->known ? sys(SYS_fcntl, of->fd, F_SETOWN_EX, &owner) : 0, flags;
    if (r == 0 && of->number)
        r = sys(SYS_fcntl, of->fd, F_SETSIG, of->number);
    if (r == 0 && of->async && (r = flags = sys(SYS_fcntl, of->fd, F_GETFL)) >= 0) {
        sys(SYS_fcntl, of->fd, F_SETFL, flags & ~O_ASYNC);     /* it may be opened with it, which has no effect */
        r = sys(SYS_fcntl, of->fd, F_SETFL, flags | O_ASYNC);
    }
    if (r < 0 && r != -EBADF && r != -ENOTTY)      /* of a device that was closed, a terminal that was hung up */
        mm_cannot_come_back("a descriptor that it had cannot signal again", "");
}

/* When all are there, and what descriptors hold has come.  The kernel names a file's last one in a signal: of several, the lowest. */
void mm_owners_back(void)
{
    for (uint64_t i = owners.count; i--;)
        tell(&owners.of[i]);
    if (owners.count)
        mm_memory_head->tree.signals = 1;
}
