/* program.h - what a program's file says of whether it can be tracked: the one reader of ELF; Python asks it too.
 *
 * Between fork and exec too: system calls only, no allocation.
 */
#ifndef MM_PROGRAM_H
#define MM_PROGRAM_H
#include <stdint.h>
#pragma GCC visibility push(hidden)
/* CDEF-BEGIN */
struct mm_program {
    int32_t is_elf;            /* itself, or what its interpreter lines lead to */
    int32_t refuses;           /* it must not even be offered our library: its loader would complain, or fail */
    char interpreter[256];     /* of a script: the last one that was looked for */
    char loader[256];          /* the dynamic loader's name */
};
const char *mm_why_not(int fd, struct mm_program *found);
int mm_calls_by_itself(int fd);
/* CDEF-END */
long mm_open_program(int dir, const char *path, int flags);
#pragma GCC visibility pop
#endif
