/* lift.h - limits of the process that the library has out of its way for a moment (lift.c). */
#ifndef MM_LIFT_H
#define MM_LIFT_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

enum mm_limit { MM_SIZE_LIMIT, MM_FILES_LIMIT, MM_LIMITS };
/* Threads that have it lifted: not 0 while the kernel's may not be the program's. */
extern uint32_t mm_lifted[MM_LIMITS];
uint64_t mm_lift(enum mm_limit which, uint64_t *hard);
void mm_lift_end(enum mm_limit which);
uint64_t mm_lift_know(enum mm_limit which, uint64_t *known, uint64_t zero);
void mm_lifts_hold(int own_size_lift);
void mm_lifts_let_go(void);
void mm_lifts_in_child(void);

#pragma GCC visibility pop

#endif
