/* listener.h - seccomp filters with a listener. */
#ifndef MM_LISTENER_H
#define MM_LISTENER_H
struct sock_fprog;
#pragma GCC visibility push(hidden)
/* CDEF-BEGIN */
int mm_listener_refused(void);
int mm_may_read_others(void);
/* CDEF-END */
long mm_quiet_fork(void);
long mm_set_listener(const struct sock_fprog *filter);
#pragma GCC visibility pop
#endif
