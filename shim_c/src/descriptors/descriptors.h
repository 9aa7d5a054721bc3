/* descriptors/descriptors.h - which descriptor is which open description of which file.
 *
 * In a call, unlocked.  The process's array changes between mm_table_begin and mm_table_end, so that a fork finds it whole; a
 * thread that has it already, in fork or in a handler, may take it again.  A descriptor is told of when it is there (mm_opened),
 * and when it is about to go (mm_closing): of two calls on one number the kernel decides.
 */
#ifndef MM_ROOM_DESCRIPTORS_H
#define MM_ROOM_DESCRIPTORS_H

#include "names/names.h"

#pragma GCC visibility push(hidden)

/* descriptors.c */
int mm_opened(int fd, int flags, mode_t mode, int created, const char *path);
long mm_set_flags(int fd, int flags);
int mm_too_late(int fd, int dir, const char *given);
void mm_closing(int fd);
void mm_replaced_unseen(int fd);
void mm_standard_replaced(void);       /* a call of its own: the C library has put a terminal or /dev/null there */
void mm_forget_descriptors(void);
void mm_map(int fd, uint32_t fit, uint32_t slot, uint32_t generation);
extern __thread int mm_forking __attribute__((tls_model("initial-exec")));
struct mm_going { uint32_t fit, slot; };
int mm_going(int fd, struct mm_going *going);
void mm_went(int fd, const struct mm_going *going);

/* replace_inode.c */
int mm_start_fresh(uint32_t slot, int fd, int flags);
long mm_empty_unfollowed(int fd, int flags);
void mm_inodes_stay(int dir, const char *path, int flags);     /* a call of its own */
void mm_inodes_watched(int dir, const char *path, int flags);  /* likewise */

#pragma GCC visibility pop

#endif
