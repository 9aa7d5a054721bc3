/* memory/memory.h - a process's memory, saved and brought back.
 *
 * Only in a run with memory, and from the constructor: before any code of the program.  What runs where no C library is has its
 * contract in memory/image_engine.h.
 */
#ifndef MM_ROOM_MEMORY_H
#define MM_ROOM_MEMORY_H

#include "process/process.h"

#pragma GCC visibility push(hidden)

/* memory_glue.c */
void mm_memory_region(void);
void mm_memory_joined(void);
void mm_memory_in_child(void);
void mm_memory_not_joined(void);
void mm_memory_before_exec(int outside);
void mm_memory_exec_failed(void);
int mm_memory_left_alone(void);
void mm_memory_places(int begins);
const char *mm_memory_keep(const char *text);

#pragma GCC visibility pop

#endif
