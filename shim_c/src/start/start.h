/* start/start.h - how a process joins the run and leaves it, and the interface for programs.
 *
 * Runs in the constructor, in the destructor, and in the program's own calls of metamori.h.
 */
#ifndef MM_ROOM_START_H
#define MM_ROOM_START_H

#include "calls/calls.h"

#pragma GCC visibility push(hidden)

/* elsewhere.c: 0 where this machine is that of the run; comes back from another one only if nothing could be executed */
int mm_become_run(void);

#pragma GCC visibility pop

#endif
