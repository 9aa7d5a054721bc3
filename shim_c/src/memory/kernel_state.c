/* kernel_state.c - what the kernel keeps for a process beside its memory: handlers, timers, pending signals. */
#include "memory/image_engine.h"
#include "base/check.h"

#include <sys/time.h>

struct action { uint64_t handler, flags, restorer, mask; };

static long at_line(const char *text, const char *word)
{
    for (const char *p = text; *p; p++)
        if ((p == text || p[-1] == '\n') && own_begins(p, word))
            return p - text + (long)own_length(word);
    return -1;
}

/* The clock of a process or thread has its number in it: ~number << 3, what it counts, and whether it is a thread's. */
#define OF_A_THREAD 4
static uint32_t whose(int clock) { return (uint32_t)~(clock >> 3); }
static int clock_of(int clock, uint32_t (*number)(uint32_t))
{
    return clock >= 0 ? clock : (int)(~(clock & OF_A_THREAD ? number(whose(clock)) : 0) << 3) | (clock & 7);
}
static int is_of_another(int clock) { return clock < 0 && !(clock & OF_A_THREAD) && whose(clock) && whose(clock) != (uint32_t)sys_getpid(); }

/* /proc/self/timers: blocks of ID, signal: n/value, notify: how/pid.n, ClockID.  -1: they cannot come back. */
static int timers(struct mm_memory_image *image)
{
    struct mm_engine *e = ENGINE;
    char *text = e->maps;
    image->timers = 0;
    mm_timers_stand();                     /* if the leader is the one that is told */
    mm_starter.saved = own_now();
    long fd = sys_openat(AT_FDCWD, "/proc/self/timers", O_RDONLY | O_CLOEXEC, 0), n = 0, r;
    if (fd < 0)
        return 0;
    while ((r = sys(SYS_read, fd, text + n, MAPS - 1 - n)) > 0)
        n += r;
    sys_close((int)fd);
    text[n] = 0;
    for (long at; (at = at_line(text, "ID: ")) >= 0;) {
        if (image->timers == MM_TIMERS)
            return -1;
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
        t->thread = (int)mm_known_tid_of((uint32_t)own_number(&p, 10));
        p = text + at_line(text, "ClockID: ");
        int below = *p == '-';
        p += below;
        int clock = (int)own_number(&p, 10);
        clock = below ? -clock : clock;
        if (is_of_another(clock))
            return -1;
        /* of the thread that made it, the kernel does not say which: it is told, as a rule */
        t->clock = clock < 0 && clock & OF_A_THREAD && !whose(clock) && t->notify == SIGEV_THREAD_ID
                 ? (int)(~(uint32_t)t->thread << 3) | (clock & 7) : clock_of(clock, mm_known_tid_of);
        sys(SYS_timer_gettime, t->id, &t->interval_s);
    }
    return 0;
}

static uint64_t bits_at(const char *text, const char *word)
{
    long at = at_line(text, word);
    const char *p = text + at;
    return at < 0 ? 0 : own_number(&p, 16);
}

/* What a thread may do: all of a process come back with the same. */
static int is_of_rights(const char *line)
{
    return own_begins(line, "Uid:") || own_begins(line, "Gid:") || own_begins(line, "Groups:") || own_begins(line, "Cap")
        || own_begins(line, "Seccomp");
}

struct seen { uint64_t own, of_all; uint32_t rights; };

/* folder: of a thread in /proc, with room behind it. */
static uint32_t crc_of_places(char *folder, uint32_t crc)
{
    static const char *const place[] = { "/ns/net", "/ns/ipc" };
    char to[64];
    for (unsigned i = 0; i < sizeof place / sizeof *place; i++) {
        uint64_t n0 = own_length(folder);
        own_copy(folder + n0, place[i], own_length(place[i]) + 1);
        long n = sys(SYS_readlinkat, AT_FDCWD, folder, to, sizeof to);
        crc = own_crc(crc, to, n > 0 ? (uint64_t)n : 0);
        folder[n0] = 0;
    }
    return crc;
}

/* A thread, by the kernel's number of it: signals that wait for it alone; for the process, whichever thread takes them; and its rights. */
static struct seen look_at_thread(uint32_t tid)
{
    char path[48] = "/proc/self/task/", *text = ENGINE->maps, number[24] = { 0 }, *digits = own_decimal(number + 23, tid);
    uint64_t n0 = own_length(path), n1 = own_length(digits);
    struct seen seen = { 0 };
    own_copy(path + n0, digits, n1);
    own_copy(path + n0 + n1, "/status", 8);
    long fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    long n = fd < 0 ? 0 : sys(SYS_read, fd, text, MAPS - 1);
    if (fd >= 0)
        sys_close((int)fd);
    text[n > 0 ? n : 0] = 0;
    seen.own = bits_at(text, "SigPnd:\t");
    seen.of_all = bits_at(text, "ShdPnd:\t");
    for (const char *line = text, *next; *line; line = next) {
        for (next = line; *next && *next++ != '\n';)
            ;
        if (is_of_rights(line))
            seen.rights = own_crc(seen.rights, line, (uint64_t)(next - line));
    }
    path[n0 + n1] = 0;
    if (__atomic_load_n(&mm_places_apart, __ATOMIC_ACQUIRE))
        seen.rights = crc_of_places(path, seen.rights);
    return seen;
}

/* Every thread stands with all signals blocked.  What a thread itself could say is older: others, and timers, have told it since.  The first
 * place is the leader's.  own: of this thread.  0, or -3: one has rights of its own. */
static int tell_apart(struct mm_memory_image *image, uint64_t *own)
{
    struct mm_engine *e = ENGINE;
    uint32_t me = (uint32_t)sys_gettid();
    struct seen first = look_at_thread(me);
    int r = 0;
    *own = first.own;
    image->pending = first.of_all;
    for (uint32_t i = 0; i <= e->asked; i++) {
        struct seen seen = i && e->signalled[i] ? look_at_thread(e->signalled[i]) : first;
        if (i ? e->signalled[i] && e->thread[i].tid : mm_known_tid_of(me) == e->thread[0].tid)
            e->thread[i].pending = seen.own;
        if (e->thread[i].tid && seen.rights != first.rights)
            r = -3;
    }
    if (mm_memory_head->flags & MM_ON_TERM) {      /* whoever continues from here is not to end for it */
        for (uint32_t i = 0; i <= e->asked; i++)
            e->thread[i].pending &= ~(1ull << (SIGTERM - 1));
        image->pending &= ~(1ull << (SIGTERM - 1));
    }
    return r;
}

/* Signals from the 34th on wait one behind the other, each with what was sent along.  The kernel shows that only to whoever takes them:
 * they are sent again at once, up to one of ours behind the last. */
#define QUEUED 64
#define ROOM_TRIES 10000
#define FIRST_QUEUED 34                    /* those before are the C library's */

struct queued { int32_t number, error, code, unused; uint32_t sender, user; uint64_t value[3]; };
union queued_info { struct queued queued; siginfo_t whole; };
static __attribute__((section("mm_program"))) struct { uint64_t count; struct queued signal[QUEUED]; } queued;

static int send_again(union queued_info *info)
{
    long r;
    /* to the process: only by its own number a thread may say that the kernel, or kill, sent it */
    while ((r = sys(SYS_rt_sigqueueinfo, sys_gettid(), info->queued.number, info)) == -EAGAIN)
        sys_pause_us(100);                 /* this user has no room for more at this moment */
    return (int)r;
}

static int note_and_send(union queued_info *info)
{
    if (send_again(info) < 0)
        return -1;
    struct queued noted = info->queued;
    if (mm_has_sender(noted.code))
        noted.sender = mm_known_number(mm_area, noted.sender);
    if (queued.count < QUEUED)
        queued.signal[queued.count] = noted;
    queued.count++;
    return 0;
}

/* Of one that says it was kill the kernel keeps, where this user has no room, only that it waits: that goes with the last that is
 * taken of its number, and so with ours. */
static int note_queued(int number)
{
    uint64_t set = 1ull << (number - 1), last = (uint64_t)&queued, waits = 0;
    struct timespec none = { 0, 0 };
    union queued_info info, before;
    own_fill(&before, 0, sizeof before);
    before.queued = (struct queued){ .number = number, .code = SI_USER };
    own_fill(&info, 0, sizeof info);
    info.queued = (struct queued){ .number = number, .code = SI_QUEUE, .sender = (uint32_t)sys_getpid(), .value = { last } };
    uint64_t first = queued.count;
    int r = (int)sys(SYS_rt_sigqueueinfo, sys_getpid(), number, &info);
    if (r < 0)
        return -1;
    while (sys(SYS_rt_sigtimedwait, &set, &info, &none, 8) == number
           && (info.queued.code != SI_QUEUE || info.queued.value[0] != last)) {
        before = info;
        if (note_and_send(&info) < 0)
            r = -1;
    }
    if (queued.count == first)
        return note_and_send(&before) < 0 ? -1 : r;
    sys(SYS_rt_sigpending, &waits, 8);
    return (waits & set) || send_again(&before) == 0 ? r : -1;
}

/* Those of which some wait for this thread alone are not told apart, and those of timers are made by these. */
static int note_all_queued(struct mm_memory_image *image, uint64_t own)
{
    queued.count = 0;
    for (uint64_t i = 0; i < image->timers; i++)
        if (ENGINE->timer[i].signal > 0)
            own |= 1ull << (ENGINE->timer[i].signal - 1);
    for (int i = FIRST_QUEUED; i <= MM_SIGNALS; i++)
        if ((image->pending & ~own) >> (i - 1) & 1) {
            if (note_queued(i) < 0)
                return -1;
            image->pending &= ~(1ull << (i - 1));
        }
    return queued.count > QUEUED ? -1 : 0;
}

/* Where there is none, one that says that it was kill comes without what is sent along, or not at all: nobody is told.  Asked by one
 * of the C library's, which no thread waits for yet. */
static int takes_one_more(void)
{
    uint64_t set = 1ull << (FIRST_QUEUED - 2);
    struct timespec none = { 0, 0 };
    union queued_info info;
    own_fill(&info, 0, sizeof info);
    info.queued = (struct queued){ .number = FIRST_QUEUED - 1, .code = SI_QUEUE };
    return sys(SYS_rt_sigqueueinfo, sys_getpid(), FIRST_QUEUED - 1, &info) == 0
        && sys(SYS_rt_sigtimedwait, &set, 0, &none, 8) == FIRST_QUEUED - 1;
}

void mm_queued_back(void)
{
    if (queued.count)
        MM_STOP("restore.queued");
    for (uint64_t i = 0; i < queued.count; i++) {
        union queued_info info;
        for (int tries = 0; !takes_one_more(); sys_pause_us(100))
            if (++tries == ROOM_TRIES)
                mm_cannot_come_back("this user has no room for signals that waited for it", "");
        own_fill(&info, 0, sizeof info);
        info.queued = queued.signal[i];
        if (mm_has_sender(info.queued.code))
            info.queued.sender = mm_real_number(mm_area, info.queued.sender);
        send_again(&info);
    }
}

/* In the writer: it was given those of the instant, as its own. */
void mm_handlers(struct mm_memory_image *image)
{
    for (int i = 1; i <= MM_SIGNALS; i++)
        sys(SYS_rt_sigaction, i, 0, &image->action[i], 8);
}

/* Which parts of the processor's state it has asked for: a bit each. */
#define ASKED_FOR 0x1022                   /* of arch_prctl, since Linux 5.16 */
#define ASK_FOR 0x1023
static __attribute__((section("mm_program"))) uint64_t asked_for;

/* A timer since it was read: its signal may wait or may not have when those were looked at. */
#define LOOKS 20                           /* where one runs out all the time */
static int one_ran_out(const struct mm_memory_image *image)
{
    for (const struct mm_timer *t = ENGINE->timer; t < ENGINE->timer + image->timers; t++) {
        uint64_t now[4];
        if ((t->value_s | t->value_ns) && sys(SYS_timer_gettime, t->id, now) == 0
            && (!(now[2] | now[3]) || now[2] > t->value_s || (now[2] == t->value_s && now[3] > t->value_ns)))
            return 1;
    }
    return 0;
}

/* -1: more signals wait than can come back, -2: its timers cannot, -3: a thread has rights of its own. */
int mm_process_state(struct mm_memory_image *image)
{
    image->brk = sys(SYS_brk, 0);
    asked_for = 0;
    sys(SYS_arch_prctl, ASKED_FOR, &asked_for);
    for (int i = 0; i < 3; i++) {
        sys(SYS_getitimer, i, &image->interval[i]);
        /* it has run out, its signal still waits; one of processor time goes on at once: without a time it was stopped */
        if (i == ITIMER_REAL && !(image->interval[i].value_s | image->interval[i].value_us)) {
            image->interval[i].value_s = image->interval[i].interval_s;
            image->interval[i].value_us = image->interval[i].interval_us;
        }
    }
    uint64_t own;
    int tries = 0, r;
    do {
        if (timers(image) < 0)
            return -2;
        MM_STOP("memory.timers");
        r = tell_apart(image, &own);
    } while (r == 0 && one_ran_out(image) && ++tries < LOOKS);
    return r < 0 ? r : note_all_queued(image, own);
}

/* The kernel numbers a process's timers upwards: one with the old number comes by making and deleting those before it, or
 * (Linux 6.16) by asking for it.  Where the thread has ended that it told, it tells nobody. */
#define IDS_GIVEN 77                       /* PR_TIMER_CREATE_RESTORE_IDS */
static void timer_back(const struct mm_timer *t, int given, uint32_t (*real)(uint32_t))
{
    struct { uint64_t value; int32_t signal, notify, thread, pad[11]; } event = { .value = t->signal_value,
        .signal = t->signal, .notify = t->notify, .thread = (int)real((uint32_t)t->thread) };
    if (t->notify == SIGEV_THREAD_ID && !event.thread)
        event.notify = SIGEV_NONE;
    int id = given ? t->id : -1;
    long r;
    while ((r = sys(SYS_timer_create, clock_of(t->clock, real), &event, &id)) >= 0 && id < t->id)
        sys(SYS_timer_delete, id);
    if (r < 0 || id != t->id || sys(SYS_timer_settime, id, 0, &t->interval_s, 0) < 0)
        mm_cannot_come_back("a timer that it had cannot be made again", "");
    union queued_info info;
    own_fill(&info, 0, sizeof info);
    info.queued = (struct queued){ .number = t->signal, .code = SI_TIMER, .sender = (uint32_t)id, .value = { t->signal_value } };
    if (t->signal == MM_MEMORY_SIGNAL && event.thread && mm_ran_out_since(t))
        sys(SYS_rt_tgsigqueueinfo, sys_getpid(), event.thread, t->signal, &info);
}

/* When all processes and threads are there: until then no time of theirs runs.  real: the number of a thread, 0: it is not. */
void mm_timers_back(const struct mm_memory_image *image, uint32_t (*real)(uint32_t))
{
    for (int i = 0; i < 3; i++)
        if (image->interval[i].interval_s | image->interval[i].interval_us | image->interval[i].value_s | image->interval[i].value_us)
            sys(SYS_setitimer, i, &image->interval[i], 0);
    int given = image->timers && sys(SYS_prctl, IDS_GIVEN, 1, 0, 0, 0) == 0;
    for (uint64_t i = image->timers; i-- > 0;)     /* the kernel names the one made last first */
        timer_back(&ENGINE->timer[i], given, real);
    if (given)
        sys(SYS_prctl, IDS_GIVEN, 0, 0, 0, 0);
}

/* Has it a timer that the C library itself makes threads for?  Whoever starts them waits for our signal and cannot be parked. */
int mm_starts_threads(void)
{
    struct mm_memory_image *image = &ENGINE->image;
    timers(image);
    for (uint64_t i = 0; i < image->timers; i++)
        if (ENGINE->timer[i].notify == SIGEV_THREAD_ID && ENGINE->timer[i].signal == MM_MEMORY_SIGNAL
            && (uint32_t)ENGINE->timer[i].thread != mm_starter.tid)
            return 1;
    return 0;
}

/* To a thread, 0: the process.  A timer's comes with what the timer sends along: of the first that can have run out. */
void mm_signal_back(const struct mm_memory_image *image, int number, uint32_t thread)
{
    union queued_info info;
    for (const struct mm_timer *t = ENGINE->timer; t < ENGINE->timer + image->timers; t++)
        if (t->notify == (thread ? SIGEV_THREAD_ID : SIGEV_SIGNAL) && t->signal == number && (!thread || (uint32_t)t->thread == thread)
            && (t->interval_s | t->interval_ns || !(t->value_s | t->value_ns))) {
            own_fill(&info, 0, sizeof info);
            info.queued = (struct queued){ .number = number, .code = SI_TIMER, .sender = (uint32_t)t->id, .value = { t->signal_value } };
            if (!thread)
                send_again(&info);
            else
                sys(SYS_rt_tgsigqueueinfo, sys_getpid(), sys_gettid(), number, &info);
            return;
        }
    if (thread)
        sys(SYS_tgkill, sys_getpid(), sys_gettid(), number);
    else
        sys(SYS_kill, sys_getpid(), number);
}

void mm_process_state_back(const struct mm_memory_image *image)
{
    if (asked_for >> MM_TILES & 1 && sys(SYS_arch_prctl, ASK_FOR, MM_TILES) < 0)
        mm_cannot_come_back("the kernel does not give it the processor's tiles (AMX)", "");
    mm_barriers_back();
    for (int i = 1; i <= MM_SIGNALS; i++)
        if (i != SIGKILL && i != SIGSTOP && i != MM_MEMORY_SIGNAL)
            sys(SYS_rt_sigaction, i, &image->action[i], 0, 8);
    for (int i = 1; i <= MM_SIGNALS; i++)
        if (image->pending >> (i - 1) & 1 && i != MM_MEMORY_SIGNAL)
            mm_signal_back(image, i, 0);
}
