/* call_filter.h - what a program that is about to be executed and the run's proxy say to each other. */
#ifndef MM_CALL_FILTER_H
#define MM_CALL_FILTER_H

#include <stdint.h>

#pragma GCC visibility push(hidden)
/* A fourth argument of execve(2): who made this filter has looked at the program, and the proxy need not. */
#define MM_LOOKED_AT 0x6d6d6578

#define MM_PROXY_VARIABLE "METAMORI_PROXY="
#define MM_PROXY_READY 3               /* the proxy's descriptor on which it says that it can be reached */

#define MM_PROXY_GO 'g'                /* as it says, or that another is there: */
#define MM_PROXY_NO 'n'
#define MM_PROXY_BLIND 'b'             /* nor would any other see the calls */

/* A letter to it: one byte, and a descriptor. */
#define MM_PROXY_LISTENER 'l'          /* of a program whose calls are shown */
#define MM_PROXY_KEEPS 'k'             /* a line to `metamori run`, which keeps what the standby has (lifecycle/proxy.py) */
#define MM_PROXY_LIVES 'p'             /* the same, which asks whether a program lives */

#define MM_FCHMODAT2 452
#define MM_SETXATTRAT 463
#define MM_REMOVEXATTRAT 466
#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif

#define MM_PROXY_PROGRAMS 448          /* at once, without those that they start */
#define MM_PROXY_PLACES 1024           /* with those that come while the last of them are counted */

void mm_rights_here(uint32_t rights[11]);

#pragma GCC visibility pop

#endif
