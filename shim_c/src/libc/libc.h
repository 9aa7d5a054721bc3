/* libc/libc.h - the C library's own functions behind the wrappers.
 *
 * calls.def is the list of them; everything that is said of each call once expands from it.
 */
#ifndef MM_ROOM_LIBC_H
#define MM_ROOM_LIBC_H

#include "memory/memory.h"

/* of the calls in calls.def */
#include <aio.h>
#include <dirent.h>
#include <fts.h>
#include <ftw.h>
#include <grp.h>
#include <mqueue.h>
#include <semaphore.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/time.h>
#include <sys/vlimit.h>
#include <termios.h>
#include <threads.h>
#include <utime.h>
#include <wchar.h>

#pragma GCC visibility push(hidden)
typedef void (*mm_handler)(int);

#define CALL(group, type, name, parameters) extern type (*real_##name) parameters;
#define ALIAS(group, alias, name)
#include "libc/calls.def"
#undef CALL
#undef ALIAS

/* the real call; another library's constructor may come before ours */
#define REAL(name) (LIKELY(real_##name) ? real_##name : (mm_begin(), real_##name))

/* in the file that holds the wrappers of a group, after them */
#define SYMBOL_ALIAS(alias, name) \
    __asm__(".globl " #alias "\n.type " #alias ",%function\n.set " #alias "," #name "\n");

/* real.c */
void mm_resolve(void);

/* old_libc.c */
void mm_old_libc(void);

/* Is the process part of a run?  Not between fork and exec: it would join there. */
static inline int active(void)
{
    if (LIKELY(mm_active))
        return 1;
    if (UNLIKELY(!mm_ready))
        mm_begin();
    return mm_active;
}

/* the same before a call that changes something: by hand in LD_PRELOAD, the run begins here */
static inline int following(void) { return active() || (UNLIKELY(mm_ready == 2) && mm_begin_late()); }

#pragma GCC visibility pop

#endif
