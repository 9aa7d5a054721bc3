/* start/start.h - how a process joins the run and leaves it, and the interface for programs.
 *
 * Runs in the constructor, in the destructor, and in the program's own calls of metamori.h.
 */
#ifndef MM_ROOM_START_H
#define MM_ROOM_START_H

#include "calls/calls.h"

#pragma GCC visibility push(hidden)

#pragma GCC visibility pop

#endif
