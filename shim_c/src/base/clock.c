/* clock.c - the kernel's clock, by the C library.
 *
 * A library that is preloaded beside ours may bring a clock of its own (libfaketime).  No file's time follows that, natively:
 * mm_resolve puts the C library's in its place.
 */
#define _GNU_SOURCE
#include "base/sys.h"

int (*mm_clock)(clockid_t, struct timespec *) = clock_gettime;
