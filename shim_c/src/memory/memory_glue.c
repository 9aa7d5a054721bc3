/* memory_glue.c - where the engine for the program's memory (memory/) meets the rest of the library. */
#include "memory/memory.h"
#include "memory/image_engine.h"

#include <stdlib.h>

/* The library's first step in a run with memory: the engine's region, and a fixed place for the run area. */
void mm_memory_region(void)
{
    long r = sys(SYS_mmap, MM_ENGINE_PLACE, sizeof(struct mm_engine), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (r != (long)MM_ENGINE_PLACE)
        return;
    sys(SYS_madvise, ENGINE->stage + STAGE_FEW, STAGE - STAGE_FEW, MADV_HUGEPAGE);
    ENGINE->pid = (uint32_t)sys_getpid();
    const char *changes = getenv("METAMORI_MEMORY_CHANGES");
    ENGINE->uncounted = changes && !strcmp(changes, "off");
    mm_area_place = MM_AREA_PLACE;
}

/* In a handler.  With --on-term a SIGTERM is held back: `metamori run` takes a checkpoint, then sends one itself, which
 * goes on to the program: no state is left behind that would let a later one through.  Other processes than the run's first,
 * which no checkpoint with memory is of, get theirs at once. */
int mm_term_waits(const siginfo_t *info, void *context)
{
    struct mm_header *h = mm_memory_head;
    if (!h || !(h->flags & MM_ON_TERM) || h->first_pid != (uint32_t)sys_getpid())
        return 0;
    if (info->si_code == SI_USER && (uint32_t)info->si_pid == h->supervisor)
        return 0;
    if (!mm_memory_run()) {
        mm_say("no checkpoint was taken at SIGTERM: `metamori run` has ended");
        return 0;
    }
    __atomic_store_n(&h->tree.term, MM_TERM_WAITS, __ATOMIC_SEQ_CST);
    sys(SYS_kill, h->supervisor, MM_REQUEST_SIGNAL);
    mm_wait_again(context);
    return 1;
}

/* Files alone would be half a checkpoint, and half a rollback: the program relies on its memory coming along.  -ESRCH. */
int mm_memory_left_alone(void)
{
    static int said;
    if (!mm_memory_head || mm_memory_run())
        return 0;
    if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
        mm_say("the program's memory can be neither saved nor brought back any more: `metamori run` has ended");
    return -ESRCH;
}

/* Around a call by which the program changes where the kernel knows its parts to lie (PR_SET_MM). */
void mm_memory_places(int begins)
{
    if (!mm_memory_head)
        return;
    if (begins) {
        __atomic_add_fetch(&ENGINE->places_change, 1, __ATOMIC_SEQ_CST);
    } else {
        __atomic_store_n(&ENGINE->places_known, 0, __ATOMIC_SEQ_CST);
        __atomic_sub_fetch(&ENGINE->places_change, 1, __ATOMIC_SEQ_CST);
    }
}

static void unblock(void)
{
    uint64_t bit = 1ull << (MM_MEMORY_SIGNAL - 1);
    sys(SYS_rt_sigprocmask, SIG_UNBLOCK, &bit, 0, 8);
}

/* A text of the environment that outlives the program's own copy. */
const char *mm_memory_keep(const char *text)
{
    if (!text || !mm_area_place)
        return text;
    size_t n = strlen(text) + 1;
    if (ENGINE->keep_used + n > sizeof ENGINE->kept_text)
        return text;
    char *to = ENGINE->kept_text + ENGINE->keep_used;
    memcpy(to, text, n);
    ENGINE->keep_used += n;
    return to;
}

/* The new program has no handler until this library is there: the signal would end it.  Blocked it waits for us; a program
 * without the library gets it as one to be ignored. */
void mm_memory_before_exec(int outside)
{
    uint64_t bit = 1ull << (MM_MEMORY_SIGNAL - 1);
    if (!mm_memory_head)
        return;
    if (outside)
        mm_handler_set((void *)1);
    else
        sys(SYS_rt_sigprocmask, SIG_BLOCK, &bit, 0, 8);
}

void mm_memory_exec_failed(void)
{
    if (mm_memory_head) {
        mm_handler_install();
        unblock();
    }
}

/* It has not joined: nothing of the run's is left behind. */
void mm_memory_not_joined(void)
{
    mm_handler_set((void *)1);             /* which takes a signal away that waits */
    unblock();
    mm_handler_set(0);
}

/* In a fork's child: its parent's threads, images and numbers are not its own. */
void mm_memory_in_child(void)
{
    struct mm_engine *e = ENGINE;
    uint32_t real = (uint32_t)sys_getpid(), known = real;
    mm_numbers = mm_fork_numbers = 0;
    if (!mm_memory_head)
        return;
    mm_my_memory = mm_active ? mm_memory_of(mm_area, mm_self_process) : NULL;
    if (mm_my_memory) {
        mm_my_memory->state = MM_MEMORY_IDLE;
        mm_my_memory->come_from = 0;
        known = mm_known_number(mm_area, real);
    }
    mm_engine_in_child(known, real);
    if (known != real) {                   /* as in one that came back: the libc's own note of the number is the program's */
        mm_known_tid = known;
        *(uint32_t *)((char *)__builtin_thread_pointer() + e->image.tid_offset) = known;
    }
}

/* The process has joined a run.  When it is to come back from an image, this does not return. */
void mm_memory_joined(void)
{
    struct mm_header *h = mm_area->head;
    if (!(h->flags & MM_MEMORY))
        return;
    if (!mm_area_place) {                  /* mm_memory_region found no room; without it the program would begin anew */
        mm_memory_head = h;
        if (mm_this_member() && mm_this_member()->comes_back)
            mm_cannot_come_back("there is no room for what brings it back", "");
        if (h->first_pid == (uint32_t)sys_getpid())    /* what it starts has no image anyway */
            mm_say("there is no room for what saves the program's memory: checkpoints are of files only");
        mm_memory_head = NULL;
        return;
    }
    mm_my_memory = mm_memory_of(mm_area, mm_self_process);
    if (!mm_my_memory) {
        mm_say("the disk has no room for what saves the memory of process %u", (unsigned)sys_getpid());
        return;
    }
    mm_my_memory->state = MM_MEMORY_IDLE;
    mm_my_memory->come_from = 0;           /* it is a program of its own now: exec */
    mm_memory_head = h;
    mm_as_a_call = &mm_self->calls;
    MM_STOP("memory.joins");
    uint32_t me = (uint32_t)sys_getpid();
    mm_engine_in_child(mm_known_number(mm_area, me), me);
    /* of the program that it was: no new one may be started before that is waited for */
    if (mm_my_memory->pid == me && (uint32_t)sys(SYS_getppid) != h->supervisor)
        ENGINE->writer = mm_my_memory->writer;
    mm_handler_install();
    unblock();
    mm_as_program.hold_term();
    struct mm_member *member = mm_this_member();
    if (member && __atomic_exchange_n(&member->comes_back, 0, __ATOMIC_ACQ_REL))
        mm_come_back(member);
}
