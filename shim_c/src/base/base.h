/* base/base.h - what needs nothing else of the library.
 *
 * Anywhere: in handlers, with locks held, between fork and exec, in a forked child.
 *
 * How the rooms' headers say what a function wants of its caller (most of it is asserted in the checked build, check.h):
 *   in a call    between enter() and leave() (area.h): a checkpoint waits for its end
 *   locked       with the file's lock, by hold();  unlocked: it takes that lock itself, so the caller has none of that file
 *   named        with the name's lock, by mm_hold_names (names.h)
 *   child        once, in a forked child, before it goes on
 * Order of locks: names, a PIF's names_lock, its lock, a FIT's lock, the area's.  Handlers of the program wait while one is held.
 * Answers are results or -errno; errno is set in the rooms `calls` and `libc`, by fast_path.c, by the programs' interface (api.c),
 * around forks (vfork.c, inherited_fds.c) and by mm_attach.  Nothing calls malloc, or a function of the C library that the program's
 * handler may have interrupted, where a header does not say so.
 */
#ifndef MM_ROOM_BASE_H
#define MM_ROOM_BASE_H

#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "base/check.h"
#include "base/crc.h"
#include "base/lift.h"
#include "base/lock_order.h"
#include "base/opened_up.h"
#include "base/reserve_fds.h"
#include "base/sys.h"

#pragma GCC visibility push(hidden)
#define EXPORT __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Functions that every call passes through and that have no array: the compiler's guard of the stack guards nothing there. */
#define HOT __attribute__((no_stack_protector))
#define MM_TRANSFER 0x7ffff000ul       /* bytes that the kernel moves in one call (MAX_RW_COUNT) */

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

/* a result of the engine as the C library gives it */
static inline long result(long r)
{
    if (r >= 0)
        return r;
    errno = (int)-r;
    return -1;
}

/* the answer of a call that failed */
static inline int fail(long error)
{
    errno = (int)-error;
    return -1;
}

/* A variable of the library that belongs to the program and comes back with it. */
#define MM_PROGRAM_STATE __attribute__((section("mm_program")))

#pragma GCC visibility pop

#endif
