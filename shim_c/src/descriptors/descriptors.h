/* descriptors/descriptors.h - which descriptor is which open description of which file.
 *
 * Between enter() and leave(), without a file's lock; mm_table_lock is taken inside.
 */
#ifndef MM_ROOM_DESCRIPTORS_H
#define MM_ROOM_DESCRIPTORS_H

#include "names/names.h"

#pragma GCC visibility push(hidden)

/* descriptors.c */
int mm_opened(int fd, int flags, mode_t mode, int created, const char *path);
struct open_how;
void mm_closing(int fd);
void mm_replaced_unseen(int fd);
void mm_forget_descriptors(void);
void mm_map(int fd, uint32_t fit, uint32_t pif, uint32_t generation);
extern uint32_t mm_table_lock;
int mm_table_begin(void);
void mm_table_end(int locked_here);
extern __thread int mm_forking __attribute__((tls_model("initial-exec")));
struct mm_going { uint32_t fit, pif; };
int mm_going(int fd, struct mm_going *going);
void mm_went(int fd, const struct mm_going *going);

/* replace_inode.c */
int mm_start_fresh(uint32_t pif, int fd, int flags);

#pragma GCC visibility pop

#endif
