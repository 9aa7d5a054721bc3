/* scratch.c - room for paths and pieces: a thread of the program may have a stack of 16 KB, most of it taken. */
#define _GNU_SOURCE
#include "base/sys.h"

#define ROOMS 64
static LARGE char rooms[ROOMS][SCRATCH_BYTES] __attribute__((aligned(64)));
static uint64_t taken;
uint64_t mm_area_place;                /* of a run with memory: where its area lies in each process; 0 in others */

char *mm_scratch_take(void)
{
    /* in a run with memory a room comes back with the thread that has it: it must be the program's memory, not ours */
    for (uint64_t have = __atomic_load_n(&taken, __ATOMIC_RELAXED); ~have && !mm_area_place;) {
        int i = __builtin_ctzll(~have);
        if (__atomic_compare_exchange_n(&taken, &have, have | 1ull << i, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return rooms[i];
    }
    for (;;) {
        long r = sys(SYS_mmap, 0, SCRATCH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (r > 0 || r < -4095)
            return (char *)r;
        sys_pause_us(1000);            /* no memory: another thread's room becomes free */
    }
}

void mm_scratch_give(char **room)
{
    size_t i = ((size_t)*room - (size_t)rooms) / SCRATCH_BYTES;
    if ((size_t)*room >= (size_t)rooms && i < ROOMS)
        __atomic_and_fetch(&taken, ~(1ull << i), __ATOMIC_RELEASE);
    else
        sys(SYS_munmap, *room, SCRATCH_BYTES);
}

/* In a child the other threads are gone. */
void mm_scratch_after_fork(void) { taken = 0; }
