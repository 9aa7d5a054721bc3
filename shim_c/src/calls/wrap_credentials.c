/* wrap_credentials.c - processes that change their user or group.
 *
 * The run area and the store belong to whoever started the run.  A process that gives up the right to write them could
 * not track its own calls any longer: it leaves the run before that, its files in place, as a program that cannot be
 * tracked (exec.c).  The runtime's thread is not one that libc knows, so what libc does for all threads is repeated
 * there: no thread keeps rights that the program has given up.
 */
#include "calls/calls.h"

#include <sys/fsuid.h>
#include <sys/syscall.h>

#define KEPT ((uid_t)-1)

/* The process becomes another user: what mm_leave_for did before it. */
static int leave_for(uid_t uid) { return active() ? mm_leave_for(uid) : 0; }

static int user_changed(int left, int r)
{
    if (r < 0)
        mm_leave_undone(left);
    else
        mm_runtime_credentials();
    return r;
}

static int group_changed(int r)
{
    if (r == 0)
        mm_runtime_credentials();
    return r;
}

EXPORT int setuid(uid_t uid)
{
    int left = leave_for(uid);
    return user_changed(left, REAL(setuid)(uid));
}
EXPORT int seteuid(uid_t uid)
{
    int left = leave_for(uid);
    return user_changed(left, REAL(seteuid)(uid));
}
EXPORT int setreuid(uid_t real, uid_t effective)
{
    int left = leave_for(effective);
    return user_changed(left, REAL(setreuid)(real, effective));
}
EXPORT int setresuid(uid_t real, uid_t effective, uid_t saved)
{
    int left = leave_for(effective);
    return user_changed(left, REAL(setresuid)(real, effective, saved));
}
/* Of this thread alone, and so are those by system call: what the whole run may write is no longer one thing. */
EXPORT int setfsuid(uid_t uid)
{
    int left = leave_for(uid), was = REAL(setfsuid)(uid);
    if (left && (uid_t)REAL(setfsuid)(KEPT) != uid)
        mm_leave_undone(left);
    return was;
}
long mm_user_by_number(long number, long a, long b, long c)
{
    int left = leave_for((uid_t)(number == SYS_setuid ? a : b));
    long r = REAL(syscall)(number, a, b, c);
    if (r < 0)
        mm_leave_undone(left);
    return r;
}
EXPORT int setgid(gid_t gid) { return group_changed(REAL(setgid)(gid)); }
EXPORT int setegid(gid_t gid) { return group_changed(REAL(setegid)(gid)); }
EXPORT int setregid(gid_t real, gid_t effective) { return group_changed(REAL(setregid)(real, effective)); }
EXPORT int setresgid(gid_t real, gid_t effective, gid_t saved) { return group_changed(REAL(setresgid)(real, effective, saved)); }
EXPORT int setgroups(size_t count, const gid_t *groups) { return group_changed(REAL(setgroups)(count, groups)); }
