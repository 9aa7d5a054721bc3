/* listener.h - seccomp filters with a listener. */
#ifndef MM_LISTENER_H
#define MM_LISTENER_H
struct sock_fprog;
#pragma GCC visibility push(hidden)
/* CDEF-BEGIN */
/* The proxy's descriptors (start/proxy.h) have the same numbers in the standby; the kernel gives others the lowest that are free. */
enum { MM_PROXY_BOX = 4, MM_PROXY_LOCK, MM_PROXY_SHARED, MM_PROXY_PAIR, MM_PROXY_KEEPER, MM_PROXY_BELL,
       MM_PROXY_LISTENERS = 2048, MM_PROXY_FILES = 4096 };
int mm_listener_refused(void);
int mm_may_read_others(void);
/* CDEF-END */
int mm_listener_refused_here(void);
long mm_quiet_fork(void);
long mm_set_listener(const struct sock_fprog *filter);
#pragma GCC visibility pop
#endif
