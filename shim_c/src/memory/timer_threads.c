/* timer_threads.c - timers that start a thread each time (SIGEV_THREAD), as the program's signals tell of them.
 *
 * The C library's own thread for it takes the engine's signal away, and could not be parked.  So the wrapper of timer_create
 * has a thread of its own (calls/wrap_process.c): the kernel tells that one, and the engine's handler counts.  While it stands,
 * what came for it is counted too: an image has no signals of this number.
 */
#include "memory/image_engine.h"
#include "base/check.h"

#define LOOKS 100       /* where one runs out all the time */

__attribute__((section("mm_program"))) struct mm_starter mm_starter;

static struct mm_thread_timer *timer_of(uint64_t value)
{
    return mm_starter.timer && (uint32_t)value < MM_TIMERS ? &mm_starter.timer[(uint32_t)value] : 0;
}

/* One that was deleted, or is another by now, has another number in its upper half. */
void mm_timer_came(uint64_t value)
{
    struct mm_thread_timer *t = timer_of(value);
    uint64_t old = t ? __atomic_load_n(&t->due, __ATOMIC_SEQ_CST) : ~value;
    while (old >> 32 == value >> 32
           && !__atomic_compare_exchange_n(&t->due, &old, old + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    __atomic_add_fetch(&mm_starter.word, 1, __ATOMIC_SEQ_CST);
}

static uint64_t in_ns(const int64_t time[2]) { return (uint64_t)time[0] * 1000000000u + (uint64_t)time[1]; }

static uint64_t time_left(int id)
{
    int64_t timer[4];
    return sys(SYS_timer_gettime, id, timer) < 0 ? 0 : in_ns(timer + 2);
}

static void count_waiting(uint64_t set)
{
    struct timespec none = { 0, 0 };
    siginfo_t info;
    while (sys(SYS_rt_sigtimedwait, &set, &info, &none, 8) == MM_MEMORY_SIGNAL) {
        if (info.si_code == SI_TIMER)
            mm_timer_came((uint64_t)info.si_value.sival_ptr);
        else if (info.si_code == SI_QUEUE && (uint64_t)info.si_value.sival_ptr == MM_MEMORY_ASK) {
            MM_STOP("timers.took");
            __atomic_store_n(&mm_starter.asked, 1, __ATOMIC_SEQ_CST);
        }                                  /* that this thread is to stop it knows */
    }
}

static int am_told(void)
{
    uint64_t fs = 0;
    return mm_starter.thread && sys(SYS_arch_prctl, 0x1003, &fs) == 0 && fs == mm_starter.thread;
}

/* By the thread that is told, if this is it, with every signal blocked. */
void mm_timers_stand(void)
{
    struct mm_starter *s = &mm_starter;
    uint64_t set = 1ul << (MM_MEMORY_SIGNAL - 1), waiting = set;
    if (!am_told())
        return;
    for (int looks = 0; waiting & set && looks < LOOKS; looks++) {
        count_waiting(set);
        s->since = own_now();
        for (uint32_t i = 0; i < s->high; i++)
            if (s->timer[i].used)
                s->timer[i].left = time_left(s->timer[i].id);
        sys(SYS_rt_sigpending, &waiting, 8);
    }
}

/* Did this thread take the signal of somebody who wants an image?  Sent again there might be no room for it. */
int mm_timers_took_ask(void) { return mm_starter.asked && am_told() && __atomic_exchange_n(&mm_starter.asked, 0, __ATOMIC_SEQ_CST); }

/* Has one that an image holds run out between those two?  Whoever comes back is told. */
int mm_ran_out_since(const struct mm_timer *of)
{
    const struct mm_thread_timer *t = timer_of(of->signal_value);
    int64_t value[2] = { (int64_t)of->value_s, (int64_t)of->value_ns };
    uint64_t now = in_ns(value);
    return t && t->due >> 32 == of->signal_value >> 32 && t->left
        && (!now || now > t->left || (of->clock >= 0 && mm_starter.saved - mm_starter.since > t->left));
}
