/* kernel_state.c - what the kernel keeps for a process beside its memory: handlers, timers, pending signals. */
#include "memory/engine.h"

struct action { uint64_t handler, flags, restorer, mask; };

static long at_line(const char *text, const char *word)
{
    for (const char *p = text; *p; p++)
        if ((p == text || p[-1] == '\n') && own_begins(p, word))
            return p - text + (long)own_length(word);
    return -1;
}

/* /proc/self/timers: blocks of ID, signal: n/value, notify: how/pid.n, ClockID */
static void timers(struct mm_memory_image *image)
{
    struct mm_engine *e = ENGINE;
    char *text = e->maps;
    image->timers = 0;
    long fd = sys_openat(AT_FDCWD, "/proc/self/timers", O_RDONLY | O_CLOEXEC, 0), n = 0, r;
    if (fd < 0)
        return;
    while ((r = sys(SYS_read, fd, text + n, MAPS - 1 - n)) > 0)
        n += r;
    sys_close((int)fd);
    text[n] = 0;
    for (long at; (at = at_line(text, "ID: ")) >= 0 && image->timers < MM_TIMERS;) {
        struct mm_timer *t = &e->timer[image->timers++];
        const char *p = text + at;
        t->id = (int)own_number(&p, 10);
        text = (char *)p;
        p = text + at_line(text, "signal: ");
        t->signal = (int)own_number(&p, 10), p++;
        t->signal_value = own_number(&p, 16);
        p = text + at_line(text, "notify: ");
        t->notify = own_begins(p, "signal/tid") ? SIGEV_THREAD_ID : own_begins(p, "signal") ? SIGEV_SIGNAL
                  : own_begins(p, "none") ? SIGEV_NONE : SIGEV_THREAD;
        while (*p != '.')
            p++;
        p++;
        t->thread = (int)own_number(&p, 10);
        p = text + at_line(text, "ClockID: ");
        t->clock = *p == '-' ? -1 : (int)own_number(&p, 10);
        sys(SYS_timer_gettime, t->id, &t->interval_s);
    }
}

/* Signals that wait for the process, whichever thread takes them; every thread counts them among its own. */
static uint64_t pending(void)
{
    char *text = ENGINE->maps;
    uint64_t any;                          /* of the process or of this thread, which has all of them blocked */
    if (sys(SYS_rt_sigpending, &any, 8) == 0 && !any)
        return 0;
    long fd = sys_openat(AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC, 0);
    long n = fd < 0 ? 0 : sys(SYS_read, fd, text, MAPS - 1), at;
    if (fd >= 0)
        sys_close((int)fd);
    text[n > 0 ? n : 0] = 0;
    if ((at = at_line(text, "ShdPnd:\t")) < 0)
        return 0;
    const char *p = text + at;
    return own_number(&p, 16);
}

void mm_process_state(struct mm_memory_image *image)
{
    image->brk = sys(SYS_brk, 0);
    for (int i = 1; i <= MM_SIGNALS; i++)
        sys(SYS_rt_sigaction, i, 0, &image->action[i], 8);
    for (int i = 0; i < 3; i++) {
        sys(SYS_getitimer, i, &image->interval[i]);
        if (!(image->interval[i].value_s | image->interval[i].value_us)) {   /* it has run out, its signal still waits */
            image->interval[i].value_s = image->interval[i].interval_s;
            image->interval[i].value_us = image->interval[i].interval_us;
        }
    }
    image->pending = pending();
    if (mm_memory_head->flags & MM_ON_TERM)        /* whoever continues from here is not to end for it */
        image->pending |= 1ull << (SIGTERM - 1);
    for (uint32_t i = 0; i <= ENGINE->asked; i++)
        ENGINE->thread[i].pending &= ~image->pending;
    if (mm_memory_head->flags & MM_ON_TERM)
        image->pending &= ~(1ull << (SIGTERM - 1));
    timers(image);
}

/* The kernel numbers a process's timers upwards: one with the old number comes by making and deleting those before it. */
static void timer_back(const struct mm_timer *t)
{
    for (int tries = 0; tries < 100000; tries++) {
        int id = -1;
        struct { uint64_t value; int32_t signal, notify, thread, pad[11]; } event = { .value = t->signal_value,
            .signal = t->signal, .notify = t->notify, .thread = t->thread };
        if (sys(SYS_timer_create, t->clock, &event, &id) < 0)
            return;
        if (id == t->id) {
            sys(SYS_timer_settime, id, 0, &t->interval_s, 0);
            return;
        }
        sys(SYS_timer_delete, id);
        if (id > t->id)
            return;
    }
}

void mm_process_state_back(const struct mm_memory_image *image)
{
    struct mm_engine *e = ENGINE;
    for (int i = 1; i <= MM_SIGNALS; i++)
        if (i != SIGKILL && i != SIGSTOP && i != MM_MEMORY_SIGNAL)
            sys(SYS_rt_sigaction, i, &image->action[i], 0, 8);
    for (int i = 0; i < 3; i++)
        if (image->interval[i].value_s | image->interval[i].value_us)
            sys(SYS_setitimer, i, &image->interval[i], 0);
    for (uint64_t i = 0; i < image->timers; i++)
        timer_back(&e->timer[i]);
    for (int i = 1; i < 32; i++)
        if (image->pending >> (i - 1) & 1)
            sys(SYS_kill, sys_getpid(), i);
}
