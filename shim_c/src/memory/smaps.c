/* smaps.c - what /proc/self/smaps alone says of a mapping: whether children are to have it (MADV_DONTFORK, MADV_WIPEONFORK), and whether some
 * of it was swapped out.  It is dear.  The kernel gives whole entries of it at a time: a line that begins with the place, ..., one
 * with the flags.
 */
#include "memory/image_engine.h"

#include <sys/sysinfo.h>

enum { NOT_THERE = 1, WIPED = 2 };         /* in the lowest bits of the start */
static uint64_t kept_count;

static void note_kept(struct mm_span of, const char *line, const char *end)
{
    uint64_t how = 0;
    for (const char *p = line; p < end; p++)
        how |= own_begins(p, " dc") ? NOT_THERE : own_begins(p, " wf") ? WIPED : 0;
    if (how && kept_count < SPANS)
        ENGINE->other[kept_count++] = (struct mm_span){ of.start | how, of.end };
}

/* The area that begins where a mapping does; NULL: none.  Both go upwards. */
static uint8_t *shares_at(struct mm_tables *t, uint64_t start, uint64_t *hint)
{
    while (*hint < t->areas && t->area[*hint].start < start)
        (*hint)++;
    return *hint < t->areas && t->area[*hint].start == start ? &t->shares[*hint] : NULL;
}

/* t: of which areas some is swapped out is noted there; NULL: which children are not to have. */
static int read_smaps(struct mm_tables *t)
{
    struct mm_engine *e = ENGINE;
    struct mm_span of = { 0, 0 };
    uint64_t hint = 0;
    uint8_t *shares = NULL;
    long n, fd = sys_openat(AT_FDCWD, "/proc/self/smaps", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return (int)fd;
    while ((n = sys(SYS_read, fd, e->maps, MAPS - 1)) > 0) {
        e->maps[n] = 0;
        for (const char *p = e->maps, *next; *p; p = next) {
            for (next = p; *next && *next++ != '\n';)
                ;
            if ((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f')) {
                of.start = own_number(&p, 16), p++;
                of.end = own_number(&p, 16);
                shares = t ? shares_at(t, of.start, &hint) : NULL;
            } else if (!t && own_begins(p, "VmFlags:")) {
                note_kept(of, p, next);
            } else if (shares && own_begins(p, "Swap:")) {
                for (p += sizeof "Swap:" - 1; *p == ' '; p++)
                    ;
                if (own_number(&p, 10))
                    *shares |= MM_SWAPPED_OUT;
            }
        }
    }
    sys_close((int)fd);
    return (int)n;
}

/* Where nothing of the machine's is nobody needs to look. */
int mm_note_swapped(struct mm_tables *t)
{
    struct sysinfo of;
    return sys(SYS_sysinfo, &of) == 0 && of.totalswap == of.freeswap ? 0 : read_smaps(t);
}

/* A copy of the process is to have all, too; nobody else begins one meanwhile: no thread of the program runs. */
static void let_have(int yes)
{
    for (const struct mm_span *s = ENGINE->other; s < ENGINE->other + kept_count; s++) {
        uint64_t start = s->start & ~(MM_PAGE - 1), length = s->end - start;
        if (s->start & NOT_THERE)
            sys(SYS_madvise, start, length, yes ? MADV_DOFORK : MADV_DONTFORK);
        if (s->start & WIPED)
            sys(SYS_madvise, start, length, yes ? MADV_KEEPONFORK : MADV_WIPEONFORK);
    }
}

/* A copy of this process that has all of its memory: as clone. */
long mm_clone_whole(long flags)
{
    kept_count = 0;
    int r = __atomic_load_n(&mm_kept_from_children, __ATOMIC_ACQUIRE) ? read_smaps(NULL) : 0;
    if (r < 0)
        return r;
    let_have(1);
    long pid = sys(SYS_clone, flags, 0, 0, 0, 0);
    if (pid)
        let_have(0);
    return pid;
}
