/* wrap_credentials.c - processes that change their user or group.
 *
 * The run area and the store belong to whoever started the run.  A process that gives up the right to write them could
 * not follow its own calls any longer: it leaves the run before that, its files in place, as a program that cannot be
 * followed (exec.c).  The runtime's thread is not one that libc knows, so what libc does for all threads is repeated
 * there: no thread keeps rights that the program has given up.
 */
#include "calls/calls.h"

#define KEPT ((uid_t)-1)

#define USER(uid, call) \
    ({ int left_ = active() ? mm_leave_for(uid) : 0, r_ = call; \
       if (r_ < 0) mm_leave_undone(left_); else mm_runtime_credentials(); \
       r_; })
#define GROUP(call) ({ int r_ = call; if (r_ == 0) mm_runtime_credentials(); r_; })

EXPORT int setuid(uid_t uid) { return USER(uid, REAL(setuid)(uid)); }
EXPORT int seteuid(uid_t uid) { return USER(uid, REAL(seteuid)(uid)); }
EXPORT int setreuid(uid_t real, uid_t effective) { return USER(effective, REAL(setreuid)(real, effective)); }
EXPORT int setresuid(uid_t real, uid_t effective, uid_t saved)
{
    return USER(effective, REAL(setresuid)(real, effective, saved));
}
EXPORT int setgid(gid_t gid) { return GROUP(REAL(setgid)(gid)); }
EXPORT int setegid(gid_t gid) { return GROUP(REAL(setegid)(gid)); }
EXPORT int setregid(gid_t real, gid_t effective) { return GROUP(REAL(setregid)(real, effective)); }
EXPORT int setresgid(gid_t real, gid_t effective, gid_t saved) { return GROUP(REAL(setresgid)(real, effective, saved)); }
EXPORT int setgroups(size_t count, const gid_t *groups) { return GROUP(REAL(setgroups)(count, groups)); }
