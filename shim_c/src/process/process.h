/* process/process.h - other programs, other processes, the embedded Python.
 *
 * exec.c, environment.c and elf.c run between fork and exec too, also where the memory is the parent's (vfork): system calls
 * only, and nothing stays taken.  inherited_fds.c and renumber.c: unlocked; mm_fork_begin takes what a fork must find whole,
 * mm_fork_in_parent and mm_after_fork (child) let it go.  The runtime (runtime.c) is asked outside of any call, for a checkpoint
 * waits for calls, and without any lock but its own (mm_runtime_hold); its first need loads it, and only that allocates.
 */
#ifndef MM_ROOM_PROCESS_H
#define MM_ROOM_PROCESS_H

#include "descriptors/descriptors.h"
#include "process/program.h"          /* elf.c */

#pragma GCC visibility push(hidden)

/* vfork.c */
int mm_vfork_begin(void);
pid_t mm_vforked(long result);

/* inherited_fds.c */
void mm_adopt(void);
void mm_came(int fd, int received);
void mm_fork_begin(void);
void mm_started(pid_t known, char *const envp[]);
void mm_fork_in_parent(void);
void mm_after_fork(void);
int mm_came_back(int fd);

/* renumber.c */
struct mm_onto { int fd, to, outermost, was_followed; struct mm_going before; };
void mm_duplicated(int fd, int to);
long mm_close(int fd);
void mm_onto_begin(struct mm_onto *onto, int fd, int to);
void mm_onto_end(const struct mm_onto *onto, int done);
void mm_leave(void);
void mm_hold_calls(void);
void mm_let_calls_go(void);
void mm_renumber_in_child(void);

/* threads_past.c */
void mm_threads_past(void);
int mm_descriptors_shared(void);        /* with another thread */

/* call_filter.c */
long mm_follow_calls(void);
int mm_goes_past_us(const struct mm_area *area, int fd);
int mm_is_shown(const struct mm_area *area);

struct mm_exec {
    char *const *envp;                 /* what the new program gets */
    void *made;                        /* memory for it, or NULL */
    size_t bytes;
    int refused;                       /* -errno: it may not be executed */
    int outside;                       /* the new program will not be tracked */
    int shown;                         /* its calls are from now on */
    int limited;                       /* nobody lifts a limit: it gets the program's own */
    uint64_t mask;
};

/* environment.c */
extern const char *mm_library;           /* the file that this library is */
int mm_leads_here(char *const envp[]);
const char *mm_ours_in(const char *list, size_t *length);
int mm_says_leave(char *const envp[]);
void mm_put_back(struct mm_exec *image, char *const envp[]);
void mm_strip(struct mm_exec *image, char *const envp[]);
void mm_environment_for(struct mm_exec *image, const char *variable);
void mm_environment_dropped(struct mm_exec *image);
void mm_environment_left(void);
void mm_environment_init(const char *(*keep)(const char *text));
const char *mm_variable(const char *name);

/* exec.c */
void mm_all_home(uint64_t dev);
void mm_show(int fd, uint32_t slot);
void mm_outsider_comes(void);
void mm_outsider_for_good(uint64_t key, const char *what);
void mm_leave_for_another(void);
int mm_leave_for(uid_t uid);
int mm_leave_confined(void);
void mm_leave_undone(int left);
void mm_before_exec(struct mm_exec *image, int dir, const char *path, int flags, char *const envp[], int replaces);
void mm_exec_failed(struct mm_exec *image);

/* write_watch.c */
void mm_watch(uintptr_t start, size_t length);
void mm_watch_after_fork(void);
void mm_unseen(void);

/* runtime.c */
int mm_runtime_call(int what, long argument, void *data);
int mm_controller_call(int what, long argument, const char *message);
int mm_made_room(int fd, int *asked);
void mm_runtime_after_fork(void);
int mm_runtime_hold(void);
void mm_runtime_let_go(int held);
void mm_runtime_credentials(void);

#pragma GCC visibility pop

#endif
