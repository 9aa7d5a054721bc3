/* program.h - what a program's file says of whether it can be tracked: the one reader of ELF; Python asks it too.
 *
 * Between fork and exec too: system calls only, no allocation.
 */
#ifndef MM_PROGRAM_H
#define MM_PROGRAM_H
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#pragma GCC visibility push(hidden)
/* CDEF-BEGIN */
struct mm_program {
    int32_t is_elf;            /* itself, or what its interpreter lines lead to */
    int32_t refuses;           /* it must not even be offered our library: its loader would complain, or fail */
    int32_t refused;           /* -errno: by what is asked before it is read */
    int32_t shows_calls;       /* where it is not tracked otherwise, the kernel can show us its calls (call_filter.c) */
    char interpreter[256];     /* of a script: the last one that was looked for */
    char loader[256];          /* the dynamic loader's name */
};
/* Why it would have other rights than this process; NULL when it would not, were there no no_new_privs. */
const char *mm_gains_rights(const struct stat *st, int fd);
const char *mm_why_not(int fd, struct mm_program *found);
int mm_calls_by_itself(int fd);
/* The number that its linker gave its build, as much as there is room for: bytes, -1 without one. */
long mm_build_id(int fd, char *id, size_t room);
/* CDEF-END */
/* before: it, and each of its interpreters, is read; 0 or -errno. */
const char *mm_why_not_after(int fd, struct mm_program *found, long (*before)(int fd));
long mm_open_program(int dir, const char *path, int flags);
/* The file's first bytes, as many as the kernel compares; zeros behind its end.  0: no format is for it; 2: it gets the rights that the file
 * gives, and not those of the program that runs it. */
#define MM_PROGRAM_HEAD 256
int mm_misc_program(int fd, const char *head, char *program, size_t room);     /* misc_format.c */
#pragma GCC visibility pop
#endif
