/* check.c - what the checked build adds: assertions that end the program, and points at which a test can stop a thread.
 *
 * A test arms the point P by making the file METAMORI_STOPS/P.  The first thread that comes by renames it to P.reached and
 * waits until there is a P.go; all others pass.  Made of system calls only: it runs with locks held, in signal handlers and
 * between fork and exec.
 */
#include "base/base.h"

#ifdef MM_CHECKED

#include <stdlib.h>

#define POLL_NS 1000000
#define POLLS 120000                   /* two minutes: a test that forgot a thread must not hang it for ever */

const char *mm_stops;

void mm_stop_here(const char *point)
{
    char armed[512], reached[520], go[520];
    if (!mm_stops || !*mm_stops || strlen(mm_stops) + strlen(point) + 16 > sizeof armed)
        return;
    snprintf(armed, sizeof armed, "%s/%s", mm_stops, point);
    snprintf(reached, sizeof reached, "%s.reached", armed);
    snprintf(go, sizeof go, "%s.go", armed);
    /* who passes makes no call that a filter shows: whoever has set one, and has sent it to nobody yet, would wait for itself */
    if (sys(SYS_faccessat, AT_FDCWD, armed, F_OK) < 0 || sys(SYS_renameat2, AT_FDCWD, armed, AT_FDCWD, reached, 0) < 0)
        return;
    struct timespec pause = { 0, POLL_NS };
    for (int i = 0; i < POLLS && sys(SYS_faccessat, AT_FDCWD, go, F_OK) < 0; i++)
        sys(SYS_nanosleep, &pause, NULL);
}

void mm_assert_failed(const char *what, const char *file, int line)
{
    char text[512];
    int n = snprintf(text, sizeof text, "metamori: assertion failed: %s:%d: %s\n", file, line, what);
    sys(SYS_write, 2, text, n);
    struct { long action, flags, restorer, mask; } unhandled = { 0, 0, 0, 0 };
    sys(SYS_rt_sigaction, SIGABRT, &unhandled, NULL, 8);
    uint64_t abort_only = 1ull << (SIGABRT - 1);
    sys(SYS_rt_sigprocmask, SIG_UNBLOCK, &abort_only, NULL, 8);
    sys(SYS_tgkill, sys(SYS_getpid), sys(SYS_gettid), SIGABRT);
    for (;;)
        sys(SYS_exit_group, 134);
}
#else
void mm_told(const char *text) { sys(SYS_write, 2, text, strlen(text)); }
#endif
