/* calls/calls.h - the wrappers: the only place that sets errno.
 *
 * A call about nothing that is tracked is the real call at once.  Otherwise it begins with enter() and ends with leave(), looks
 * its slots up in between, and makes the real call there.  A wrapper may run in a handler of the program and in a child of vfork.
 * What is declared here is for the room `start` and for wrappers of another kind.
 */
#ifndef MM_ROOM_CALLS_H
#define MM_ROOM_CALLS_H

#include "libc/libc.h"

#pragma GCC visibility push(hidden)

/* wrap_syscall.c */
extern __thread int mm_within_syscall __attribute__((tls_model("initial-exec")));

/* wrap_signal.c */
void mm_actions_after_fork(void);

/* wrap_blocking.c */
ssize_t mm_write_held_up(int fd, const void *data, size_t size);
#define MM_LONG_READ 257               /* shorter ones no signal ends */
ssize_t mm_read_held_up(int fd, void *data, size_t size);
ssize_t mm_writev_held_up(int fd, const struct iovec *vector, int count);
ssize_t mm_sendmsg_held_up(int fd, const struct msghdr *message, int flags);
ssize_t mm_recvmsg_held_up(int fd, struct msghdr *message, int flags);

/* wrap_fd.c */
struct open_how;
int mm_open_resolved(int dir, const char *path, const struct open_how *how, size_t size);

/* wrap_pid.c */
#define MM_PROC_NAME 256
#define MM_NOT_IN_PROC 1000000000l
int mm_control(int fd, int command, void *argument);           /* fcntl, ioctl: with the numbers that the program knows */
int mm_control_device(int fd, unsigned long request, void *argument);
long mm_in_proc(const char *name, int flags, struct stat *st);
const struct sigevent *mm_event_in(const struct sigevent *event, struct sigevent *real);   /* a thread's number in it, as the kernel knows it */
const char *mm_to_proc(const char *path, char *room);
/* A call that is `given` a path: `path` in it is what the kernel is to be given. */
#define MM_BY_NAME(type, path, call) ({ \
    char room_[MM_PROC_NAME]; \
    const char *path = given; \
    UNLIKELY(mm_memory_head) && mm_have_come_back() ? MM_NUMBERS(type, (path = mm_to_proc(given, room_), call)) : (call); })

/* held_names.c */
/* One or two paths whose names a call gives or takes: held from before they are looked up for good. */
struct way {
    struct mm_names names;
    int entered;               /* between enter() and leave(), with the names held */
    int all;                   /* all of them */
    int again;                 /* hold all: the call changes where paths lead, or they lead nowhere yet */
    int follow;                /* the call follows a link that stands there */
    int folders;               /* a folder out of the scope counts, too, where something in it is tracked */
};
int mm_begin_way(struct way *way, int dir, const char *path, char *name, int other_dir, const char *other_path, char *other);
void mm_end_way(struct way *way);
int mm_outer_place(int dir, const char *path);
int mm_outer_way(int dir, const char *path);
int mm_apart(int dir, const char *path, int other_dir, const char *other);
/* The call is made for another program, which was killed meanwhile (start/proxy_calls.c): asked when nothing keeps it waiting any
 * more, for whoever has waited for that program's end may have put something else there. */
extern int (*mm_asker_gone)(void);
static inline int mm_has_lapsed(void) { return UNLIKELY(mm_asker_gone != NULL) && mm_asker_gone(); }
#define MM_OF_A_PROGRAM 0x65735546     /* FUSE_SUPER_MAGIC, which older headers do not have */

/* A call that gives one name, or changes what stands there. */
struct noted {
    struct way way;
    char *name;                /* empty: not tracked */
    uint64_t dev, ino;         /* of what stands there, where that was looked at; ino 0: it was not */
};
/* followed: what a link leads to that stands there; new: the call makes it, and all_held, with no other name taken meanwhile */
enum noting { MM_THE_NAME, MM_NEW_NAME, MM_FOLLOWED, MM_ALL_HELD };
int mm_begin_noted(struct noted *n, int dir, const char *path, enum noting how);
int mm_end_noted(struct noted *n, int r);
int mm_made_room_at(int dir, const char *path, int follow, int *asked);
/* A call that gives or takes this name is made again where the disk was full and a prune has freed some of it. */
#define MM_WITH_ROOM(dir, path, call) ({ \
    int r_, asked_ = 0, saved_ = errno; \
    do errno = saved_, r_ = (call); while (UNLIKELY(r_ < 0) && mm_made_room_at(dir, path, 0, &asked_)); \
    r_; })

/* wrap_process.c */
void mm_other_world(unsigned long clone_flags);
/* A thread begins, maybe without the process's working folder and umask: images are looked over for that (memory/save.c). */
static inline void mm_may_part(unsigned long clone_flags)
{
    if (!(clone_flags & CLONE_FS))
        __atomic_store_n(&mm_folders_apart, 1, __ATOMIC_SEQ_CST);
}
void mm_timers_in_child(void);

/* wrap_exec.c */
const char *mm_search_list(void);
const char *mm_search_on(const char *file, const char **list, char *out, size_t room);
const char *mm_searched(const char *file, char *out, size_t room);

/* wrap_pid.c */
pid_t mm_real_thread_number(pid_t known);

/* wrap_sysv.c */
long mm_queue_opened(const char *name, long fd);

/* wrap_rights.c */
long mm_confining(long number, long a, long b, long c);
long mm_user_by_number(long number, long a, long b, long c);
id_t mm_share_number(int is_process, int is_group, id_t known);

/* wrap_attributes.c */
void mm_before_flags(int dir, const char *path, int flags, const uint64_t *wanted);
long mm_attributes_at(int flags, mode_t mode, long number, long a, long b, long c, long d, long e, long f);

/* wrap_async_io.c */
void mm_ring_made(void);
void mm_ring_mapped(int fd);
void mm_ring_may_use(int fd);
long mm_before_raw(long number, long a, long b, long c);

/* wrap_data.c */
int mm_kernel_reads(int fd);
int mm_kernel_writes(int fd);
int mm_is_file(int fd);
int mm_hold_cancellation(void);

/* wrap_signal.c */
void mm_hold_term(void);

/* wrap_stream.c */
void mm_streams_init(void);
extern int mm_streams_followed;

#pragma GCC visibility pop

#endif
