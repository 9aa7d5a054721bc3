/* call_filter.h - what a program that is about to be executed and the run's proxy say to each other. */
#ifndef MM_CALL_FILTER_H
#define MM_CALL_FILTER_H

#include <sys/un.h>

#pragma GCC visibility push(hidden)
/* A fourth argument of execve(2): who made this filter has looked at the program, and the proxy need not. */
#define MM_LOOKED_AT 0x6d6d6578

#define MM_PROXY_VARIABLE "METAMORI_PROXY="
#define MM_PROXY_READY 3               /* the proxy's descriptor on which it says that it can be reached */

/* one byte each: proxy, program, proxy */
#define MM_PROXY_GO 'g'                /* there is a place: set the filter */
#define MM_PROXY_NO 'n'                /* the proxy may not look into the program; another proxy is there */
#define MM_PROXY_LISTENER 'l'          /* with the listener's descriptor */
#define MM_PROXY_TAKEN 't'             /* its calls are answered */
#define MM_PROXY_KEEPS 'k'             /* `metamori run` instead of a program: it keeps what the standby has (lifecycle/proxy.py) */

#define MM_FCHMODAT2 452
#define MM_SETXATTRAT 463
#define MM_REMOVEXATTRAT 466
#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif

int mm_proxy_address(struct sockaddr_un *address);

#pragma GCC visibility pop

#endif
