/* proxy.h - the process that makes calls in place of programs that our library is not in: its life (proxy.c), its threads
 * (proxy_threads.c), the program that waits (proxy_program.c), where its names lead (proxy_place.c), its call (proxy_calls.c,
 * proxy_attributes.c). */
#ifndef MM_PROXY_H
#define MM_PROXY_H

#include "start/start.h"
#include "process/call_filter.h"
#include "process/listener.h"

#include <linux/seccomp.h>

#pragma GCC visibility push(hidden)

#define MM_PROXY_THREADS 256
#define MM_PROXY_CALLS 8192            /* that a thread has, or that wait for one */

#define MM_PROXY_BEHIND (MM_PROXY_LISTENERS + MM_PROXY_PLACES)     /* the listeners' numbers */

/* A call that was shown, in memory that the standby has too: what the proxy was at when it was killed is done by its successor.
 * The kernel writes `notice` itself, and an id in it that is not 0 is a call without an answer. */
struct mm_shown {
    struct seccomp_notif notice;
    uint32_t tgid;                     /* its process; notice.pid is its thread */
    int32_t listener;
    uint32_t tries;                    /* by proxies that were killed amid it, and this one's */
    int32_t given;                     /* 1 + the number of the descriptor that the program has by now */
    uint64_t noted;                    /* the inode that was at the first name, before an exchange */
};

struct mm_proxy_shared {
    struct mm_shown call[MM_PROXY_CALLS];
    uint32_t used;                     /* no call has ever been behind these */
    uint8_t confined[MM_PROXY_PLACES];         /* by Landlock */
    uint8_t elsewhere[MM_PROXY_PLACES];        /* its processes may have other roots, namespaces, groups or file system ids than it began with */
    uint8_t own_umask[MM_PROXY_PLACES];        /* and other umasks than they had when they were first seen */
};
extern struct mm_proxy_shared *mm_proxy_shared;

/* What is known of a program that waits, as long as it lives: descriptors of its process. */
struct mm_waiting {
    uint32_t tid, tgid;
    int process, folder, status;       /* pidfd, of the thread since Linux 6.9; its folder and its status in /proc */
    int goes, is_at;                   /* our thread goes where it likes, and is in that folder between calls */
    int here;                          /* it has the root, the namespaces and the groups that we have */
    int umask;                         /* when it was first seen; -1: it is not known */
    uid_t uid;                         /* effective ones, at its present call */
    gid_t gid;
};

struct mm_place;
enum mm_answer { MM_ANSWER_KERNEL, MM_ANSWER_RESULT };

static inline enum mm_answer mm_answered_by(long r, long *result)
{
    *result = r;
    return MM_ANSWER_RESULT;
}
static inline enum mm_answer mm_answered(long r, long *result) { return mm_answered_by(r < 0 ? -errno : r, result); }

/* Makes the call.  MM_ANSWER_KERNEL: the kernel makes it; MM_ANSWER_RESULT: *result or -errno is its answer. */
enum mm_answer mm_make_shown_call(struct mm_shown *call, const struct mm_waiting *from, long *result);
/* The program for which this thread makes a call, or is about to, has been killed: mm_asker_gone (calls/calls.h). */
int mm_asker_is_gone(void);
enum mm_answer mm_shown_attributes(const struct mm_shown *call, const struct mm_waiting *from, const uint64_t *arguments,
                                   struct mm_place *place, long *result);
/* It executes a program.  One that would have another user's rights, but for the filter: said once, on its stderr.  To one whose
 * loader could not bear our library it is not offered. */
void mm_look_at_program(const struct mm_shown *call, const struct mm_waiting *from);

/* -- proxy_program.c.  All say what is true of the program that waits, and not of another that has its number by now. */

void mm_proxy_know_itself(void);
/* 1: it is still there. */
int mm_waiting_look(const struct mm_shown *call, struct mm_waiting *from);
/* Has it the user, the rights, the root and the mounts that we have? */
int mm_waiting_is_like_us(const struct mm_shown *call, const struct mm_waiting *from);
int mm_is_own_file(const struct stat *st);
int mm_is_kernels_file(const struct stat *st);
int mm_still_waits(const struct mm_shown *call);
/* Bytes of its memory, at most room: how many; a string ends with its 0.  -errno. */
long mm_shown_string(const struct mm_shown *call, uint64_t address, char *to, size_t room);
int mm_shown_bytes(const struct mm_shown *call, uint64_t address, void *to, size_t bytes);
/* It sets a filter that hands calls to a tracer, which would not get those that are shown (proot's paths mean what it makes of them). */
int mm_hands_calls_over(const struct mm_shown *call);
/* A descriptor of it, here too.  -errno. */
long mm_shown_descriptor(const struct mm_shown *call, const struct mm_waiting *from, int fd);
int mm_has_number_left(const struct mm_waiting *from);
/* By `metamori run`; where that is gone, on the program's own stderr, if that takes it at once: ours leads nowhere.  Once in a run for
 * each key. */
void mm_say_of(const struct mm_shown *call, const struct mm_waiting *from, uint64_t key, const char *text);
void mm_say_not_tracked(const struct mm_shown *call, const struct mm_waiting *from, uint64_t key, const char *why);
int mm_gets_no_rights(const struct mm_waiting *from);
/* A thread may have a table of descriptors that is not its process's. */
int mm_has_own_table(const struct mm_waiting *from);
int mm_take_umask(const struct mm_shown *call, const struct mm_waiting *from);
/* May we look into a process? */
int mm_may_look_into(int pid);

/* -- proxy_place.c */

#define PATH_ROOM_SHOWN 4096
struct mm_place {
    int dir;
    int there;                         /* this thread is in the program's folder */
    int is_near;                       /* path: "cwd/..." in the program's folder in /proc, where this thread is */
    int back;                          /* the folder that it goes back to, or -1 */
    int beneath;                       /* RESOLVE_BENEATH: no path from the root */
    char path[PATH_ROOM_SHOWN];
};
#define MM_NO_PLACE { .dir = AT_FDCWD, .back = -1 }

/* The path that an argument names, where names lead here.  0: leave the call to the kernel.  Left again in either case. */
int mm_find_place(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t address, struct mm_place *place);
/* The same for a file that is likely to be there, with less asked; to make one, or empty it, it must be reached. */
int mm_find_file(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t address, struct mm_place *place);
int mm_reach_file(const struct mm_shown *call, const struct mm_waiting *from, struct mm_place *place);
int mm_find_open(const struct mm_shown *call, const struct mm_waiting *from, int dir, uint64_t address, unsigned *flags, struct mm_place *place);
void mm_leave_place(struct mm_place *place);
/* For calls that take no folder. */
char *mm_whole_path(const struct mm_place *place, char *path, size_t room);

/* -- proxy_threads.c */
int mm_proxy_threads_begin(void);
void mm_proxy_watch(int listener);
void mm_proxy_forget(int listener);
int mm_proxy_is_idle(void);

/* -- proxy.c: init.c joins in between: the first says whether this is the proxy, the second does not come back. */

int mm_proxy_begin(const char *store);
void mm_proxy_serve(int joined) __attribute__((noreturn));

#pragma GCC visibility pop

#endif
