/* names_lock.c - a name is changed by one call of the run at a time.
 *
 * What a call that takes a name away has to keep is decided by what stands there: so from that look until the kernel has
 * answered, no other call of the run may put something else there.  A name's lock is chosen by a hash of its path.  A call
 * that changes where paths lead (it renames a folder, or makes, renames or removes a symbolic link, tracked or not) holds them all,
 * and counts in ways_changed before it lets go: who looked up a path before that looks it up again.  Who removes a folder need not:
 * until a link comes to its place, paths through it lead nowhere.  A link by a descriptor holds all, too: it gives a file a name, and
 * holds none of its own.
 */
#include "names/names.h"

_Static_assert(MM_NAME_LOCKS == 64, "struct mm_names has a bit for each");

static unsigned lock_of(const char *path) { return (unsigned)(mm_mixed(1, path, strlen(path)) >> 40) % MM_NAME_LOCKS; }

/* The first of these locks; the rest, in their order, are those without it. */
static uint32_t *first_of(uint64_t which) { return &mm_area->head->name_lock[__builtin_ctzll(which)]; }

static void hold_these(struct mm_names *names, uint64_t which)
{
    MM_ASSERT(mm_depth > 0);           /* a checkpoint waits for who holds a name */
    names->mask = defer_handlers();
    names->held = which;
    for (; which; which &= which - 1)
        mm_lock(first_of(which), MM_LOCK_NAME);
}

/* One path, or two; NULL for none. */
void mm_hold_names(struct mm_names *names, const char *one, const char *other)
{
    hold_these(names, (one ? 1ull << lock_of(one) : 0) | (other ? 1ull << lock_of(other) : 0));
}

void mm_hold_all_names(struct mm_names *names) { hold_these(names, ~0ull); }

void mm_let_names_go(struct mm_names *names)
{
    for (; names->held; names->held &= names->held - 1)
        mm_unlock(first_of(names->held));
    deliver_handlers(names->mask);
}

uint32_t mm_ways(void) { return __atomic_load_n(&mm_area->head->ways_changed, __ATOMIC_SEQ_CST); }
void mm_way_changed(void) { __atomic_add_fetch(&mm_area->head->ways_changed, 1, __ATOMIC_SEQ_CST); }

/* Does this thread hold it?  For assertions. */
int mm_name_is_held(const char *path)
{
    return (__atomic_load_n(&mm_area->head->name_lock[lock_of(path)], __ATOMIC_RELAXED) & MM_OWNER) == mm_tid;
}
