/* One contract of the preload library, kept or broken, by its number: compiled with the rooms `area` and `base` and -DMM_CHECKED
 * (tests/unit/test_lock_order.py).  Prints "kept" and ends, or is aborted by the assertion. */
#include "area/area.h"

#include <stdlib.h>

static struct mm_header header;
static struct mm_area area = { .head = &header };
static struct mm_process process;
static struct mm_pif file[2];

static void in_order(void)
{
    enter();
    mm_lock(&header.name_lock[1], MM_LOCK_NAME);
    mm_lock(&header.name_lock[2], MM_LOCK_NAME);
    int held = mm_pif_hold_names(&file[0]);
    uint64_t mask = hold(&file[0]);
    mm_lock(&header.lock, MM_LOCK_AREA);
    mm_unlock(&header.lock);
    release(&file[0], mask);
    MM_ASSERT(!mm_pif_hold_names(&file[0]));      /* this thread has it */
    mm_pif_let_names_go(&file[0], held);
    mm_unlock(&header.name_lock[1]);
    mm_unlock(&header.name_lock[2]);
    leave();
}
static void upward(void)
{
    uint64_t mask = hold(&file[0]);
    mm_pif_hold_names(&file[0]);
    release(&file[0], mask);
}
static void two_of_a_kind(void)
{
    hold(&file[1]);
    hold(&file[0]);
}
static void twice(void)
{
    hold(&file[0]);
    hold(&file[0]);
}
static void of_another_thread(void)
{
    file[0].lock = 1;
    release(&file[0], MM_MASK_LEFT);
}
static void unlocked(void) { mm_table_set(&area, &file[0], 0, 0, 1); }
static void begins_with_a_lock(void)
{
    hold(&file[0]);
    enter();
}
static void leaves_twice(void)
{
    enter();
    leave();
    leave();
}
static void limits_in_a_call(void)
{
    enter();
    mm_limit_begin();
}

static void beside_a_handler(void) { mm_lock(&header.lock, MM_LOCK_AREA); }

static void (*const contract[])(void) = {
    in_order, upward, two_of_a_kind, twice, of_another_thread, unlocked, begins_with_a_lock, leaves_twice, limits_in_a_call,
    beside_a_handler,
};

int main(int count, char **word)
{
    if (count != 2)
        return 2;
    mm_area = &area;
    mm_self = &process;
    mm_active = 1;
    mm_size_limit = RLIM_INFINITY;
    contract[atoi(word[1])]();
    return puts("kept") < 0;
}
