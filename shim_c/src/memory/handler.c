/* handler.c - the engine's signal: the thread that gets it becomes the leader, or parks.
 *
 * A thread stands in the signal handler: what it was doing is in the frame that the kernel put on its stack (stop_threads.c).
 */
#include "memory/image_engine.h"
#include "area/area.h"
#include "base/check.h"

#define FXSAVE 512      /* bytes of the processor's state that all have; the last say how many there are */

struct action { uint64_t handler, flags, restorer, mask; };
/* the C library's own use of the signal: cancelling threads */
__attribute__((section("mm_program"))) static struct action theirs;

/* stop is even where that one was given up meanwhile. */
static void park(void *argument)
{
    struct mm_engine *e = ENGINE;
    uint32_t stop = __atomic_load_n(&e->stop, __ATOMIC_ACQUIRE);
    mm_note_thread(argument);
    mm_timers_stand();
    __atomic_add_fetch(&e->parked, 1, __ATOMIC_RELEASE);
    while (stop & 1 && __atomic_load_n(&e->stop, __ATOMIC_ACQUIRE) == stop)
        sys_futex_wait(&e->stop, stop, 1000000);
}

/* Threads of the last stop, or of a restart, may still stand on the stacks, and read the notes, that an image is made with.  0: they stay. */
static int await_within(const struct mm_engine *e)
{
    uint64_t since = own_now();
    while (e->pid == (uint32_t)sys_getpid() && __atomic_load_n(&e->within, __ATOMIC_ACQUIRE)) {
        if (own_now() - since > MM_PATIENCE_NS)
            return 0;
        sys_pause_us(20);
    }
    return 1;
}

static void lead(void *argument)
{
    mm_note_thread(argument);
    mm_save();
    __atomic_store_n(&mm_my_memory->runs, 1, __ATOMIC_RELEASE);
    sys_futex_wake(&mm_my_memory->runs, 1);
}

static int is_entering(const ucontext_t *context)
{
    uint64_t at = (uint64_t)context->uc_mcontext.gregs[REG_RIP];
    return at >= (uint64_t)__start_mm_entry && at < (uint64_t)__stop_mm_entry;
}

static const struct _fpx_sw_bytes *said_of_state(const ucontext_t *context)
{
    const struct _fpx_sw_bytes *said = (const void *)((uint64_t)context->uc_mcontext.fpregs + FXSAVE - sizeof *said);
    return said->magic1 == FP_XSTATE_MAGIC1 ? said : 0;
}

/* The processor's state stands last, as long as it says itself. */
static uint64_t end_of_frame(const ucontext_t *context)
{
    const struct _fpx_sw_bytes *said = said_of_state(context);
    return (uint64_t)context->uc_mcontext.fpregs + (said ? said->extended_size : FXSAVE);
}

static int has_tiles(const ucontext_t *context) { return said_of_state(context) && said_of_state(context)->xstate_bv >> MM_TILES & 1; }

static int is_asked(void)
{
    return mm_memory_head && mm_my_memory && __atomic_load_n(&mm_my_memory->state, __ATOMIC_SEQ_CST) == MM_MEMORY_ASKED
        && mm_my_memory->pid == (uint32_t)sys_getpid();
}

/* The signal of whoever asks again before this one is leader no more comes to nothing in another thread: so this one looks. */
static void lead_while_asked(void *context)
{
    struct mm_engine *e = ENGINE;
    uint32_t none = 0;
    int again = 0;
    while (!again && is_asked()
           && __atomic_compare_exchange_n(&e->leader, &none, (uint32_t)sys_gettid(), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        e->entering = is_entering(context) || mm_numbers_under_way(context);
        e->tiles = has_tiles(context);
        if (!await_within(e)) {
            mm_my_memory->error = EAGAIN;
            mm_answer(MM_MEMORY_ASKED, MM_MEMORY_FAILED);
            __atomic_store_n(&e->leader, 0, __ATOMIC_SEQ_CST);
            continue;
        }
        mm_numbers_known(context);
        e->frame_end = end_of_frame(context);
        int back = mm_switch(e->thread[0].registers, lead, &e->thread[0], stack_top(e->leader_stack, LEADER_STACK));
        mm_numbers_real(context);
        if (back) {
            __atomic_sub_fetch(&e->within, 1, __ATOMIC_RELEASE);
            return;
        }
        again = e->again;
        MM_STOP("memory.led");
        __atomic_store_n(&e->leader, 0, __ATOMIC_SEQ_CST);
        if (again)
            mm_answer(MM_MEMORY_ASKED, MM_MEMORY_AGAIN);
    }
    MM_STOP("memory.looked");
}

static void park_as_asked(uint32_t stop, void *context)
{
    struct mm_engine *e = ENGINE;
    uint32_t me = (uint32_t)sys_gettid();
    __atomic_add_fetch(&e->within, 1, __ATOMIC_SEQ_CST);   /* from here on there is no other stop */
    for (uint32_t i = 1; i < THREADS && __atomic_load_n(&e->stop, __ATOMIC_SEQ_CST) == stop; i++)
        if (e->signalled[i] == me) {
            MM_STOP("memory.parks");
            if (is_entering(context) || mm_numbers_under_way(context))
                __atomic_store_n(&e->entering, 1, __ATOMIC_RELEASE);
            if (has_tiles(context))
                __atomic_store_n(&e->tiles, 1, __ATOMIC_RELEASE);
            mm_numbers_known(context);
            mm_switch(e->thread[i].registers, park, &e->thread[i], stack_top(e->thread_stack[i], THREAD_STACK));
            mm_numbers_real(context);
            break;
        }
    __atomic_sub_fetch(&e->within, 1, __ATOMIC_RELEASE);
}

/* In pthread_create this thread may have a lock of the C library for which one that ends waits with every signal blocked: it neither
 * parks nor leads there, but behind it.  Asked twice it does: it may itself wait for one that parks. */
static __thread struct { int within, asked; uint64_t stop; } late __attribute__((tls_model("initial-exec")));

static void send_late(uint64_t value)
{
    siginfo_t info;
    own_fill(&info, 0, sizeof info);
    info.si_signo = MM_MEMORY_SIGNAL;
    info.si_code = SI_QUEUE;
    info.si_value.sival_ptr = (void *)value;
    while (sys(SYS_rt_tgsigqueueinfo, sys_getpid(), sys_gettid(), MM_MEMORY_SIGNAL, &info) == -EAGAIN)
        sys_pause_us(100);             /* this user has no room for a signal */
}

void mm_late_begin(void)
{
    late.within = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void mm_late_end(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    late.within = 0;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    int asked = late.asked;
    uint64_t stop = late.stop;
    late.asked = 0, late.stop = 0;
    if (asked)
        send_late(MM_MEMORY_ASK);
    if (stop)
        send_late(stop);
}

__thread int mm_cancelled_at_once __attribute__((tls_model("initial-exec")));

/* The C library ends this thread here, and a call that it is in would never end: so that waits (area/guard.c).  A thread that may be
 * cancelled only where it waits is in none then, and must not be kept from it. */
static void cancel(int number, siginfo_t *info, ucontext_t *context)
{
    uint64_t mask = *(uint64_t *)&context->uc_sigmask | theirs.mask | 1ull << (MM_MEMORY_SIGNAL - 1);
    if (theirs.handler <= 1)
        return;
    if (mm_cancelled_at_once && (mm_depth || mm_holding) && info->si_code == SI_TKILL && info->si_pid == (pid_t)sys_getpid()) {
        mm_defer(MM_CANCELLED);
        return;
    }
    sys_mask_back(mask);               /* for what is called when a thread ends */
    ((void (*)(int, siginfo_t *, void *))theirs.handler)(number, info, context);
}

/* Nothing of the program is known here, not even that the frame pointer means something. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    uint64_t value = (uint64_t)info->si_value.sival_ptr;
    if (info->si_code == SI_TIMER && mm_memory_head) {
        mm_timer_came(value);
        return;
    }
    if (info->si_code != SI_QUEUE || (value != MM_MEMORY_ASK && value >> 32 != MM_MEMORY_STOP) || !mm_memory_head) {
        cancel(number, info, context);
        return;
    }
    if (late.within && !(value == MM_MEMORY_ASK ? late.asked : late.stop == value)) {
        if (value == MM_MEMORY_ASK)
            late.asked = 1;
        else
            late.stop = value;
        return;
    }
    mm_wait_again(context);
    if (value != MM_MEMORY_ASK)
        park_as_asked((uint32_t)value, context);
    if (value == MM_MEMORY_ASK || mm_timers_took_ask())
        lead_while_asked(context);
}

/* 0: as a new program has it; 1: ignored. */
void mm_handler_set(void *handler)
{
    struct action plain = { (uint64_t)handler, 0x04000000, (uint64_t)mm_return_from_signal, 0 };
    sys(SYS_rt_sigaction, MM_MEMORY_SIGNAL, &plain, 0, 8);
}

/* Without memory it only stands before the C library's, and on the stack that that has. */
void mm_handler_install(void)
{
    struct action ours = { (uint64_t)on_signal, SA_SIGINFO | SA_RESTART | SA_ONSTACK | 0x04000000 /* SA_RESTORER */,
                           (uint64_t)mm_return_from_signal, ~0ul }, now;
    sys(SYS_rt_sigaction, MM_MEMORY_SIGNAL, 0, &now, 8);
    if (now.handler == ours.handler)
        return;
    if (now.handler != 1)                  /* not our own hand (mm_handler_set) */
        theirs = now;
    if (!mm_memory_head)
        ours.flags &= now.flags | SA_SIGINFO | 0x04000000;
    sys(SYS_rt_sigaction, MM_MEMORY_SIGNAL, &ours, 0, 8);
}
