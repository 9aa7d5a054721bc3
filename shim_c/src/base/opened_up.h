/* opened_up.h - what its mode shuts even to its owner, opened up for a moment. */
#ifndef MM_OPENED_UP_H
#define MM_OPENED_UP_H
#include <stddef.h>
#include <sys/types.h>
/* Of a file; of a folder MM_SHUT_FOLDER.  All add the same ones: who finds one missing has seen the mode as it was, and only he puts it
 * back. */
#define MM_SHUT_BITS 0600u
#define MM_SHUT_FOLDER 0700u
#define MM_SHUT_TRIES 100
#pragma GCC visibility push(hidden)
struct mm_opened_up { int at; mode_t mode, opened; char by[40]; };    /* by: its name, whatever has the path now */
int mm_open_up(struct mm_opened_up *o, const char *path, int flags, mode_t needed);
void mm_shut_again(const struct mm_opened_up *o);
long mm_open_shut(const char *path, int flags);
long mm_getxattr_shut(const char *path, const char *name, void *value, size_t room);
#pragma GCC visibility pop
#endif
