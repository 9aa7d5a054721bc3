/* shared_memory.c - memory that several processes share: in whose image it is, what of it is there, and what has changed; and what
 * children are to have of a process's memory.
 */
#include "memory/image_engine.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>

#define AT_ONCE (32ul << 20)

/* -- what /proc/self/smaps alone says: whether children are to have a mapping (MADV_DONTFORK, MADV_WIPEONFORK), and whether some of it was
 * swapped out.  It is dear.  The kernel gives whole entries of it at a time: a line that begins with the place, ..., one with the
 * flags. -- */

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

/* Some was swapped out since it was looked for holes. */
int mm_missed_some(const struct mm_tables *t, uint64_t areas)
{
    for (uint64_t i = 0; i < areas; i++)
        if ((t->shares[i] & (MM_LOOKED_FOR_HOLES | MM_SWAPPED_OUT)) == (MM_LOOKED_FOR_HOLES | MM_SWAPPED_OUT))
            return 1;
    return 0;
}

/* -- what is there -------------------------------------------------------------------------------------------------------------------- */

/* Is it a file of tmpfs, be it in /dev/shm or without a name?  All that there is of such a one is in memory, or was swapped out. */
static int is_of_memory(uint32_t device)
{
    static uint64_t nameless;              /* the kernel's own tmpfs */
    struct stat st;
    struct statfs fs;
    uint64_t known = sys_dev(device >> 20, device & 0xfffff);
    if (!nameless) {
        int fd = (int)sys(SYS_memfd_create, "", MFD_CLOEXEC);
        if (fd >= 0 && sys(SYS_fstat, fd, &st) == 0)
            nameless = st.st_dev;
        if (fd >= 0)
            sys_close(fd);
    }
    return known == nameless || (sys(SYS_newfstatat, AT_FDCWD, "/dev/shm", &st, 0) == 0 && st.st_dev == known
                                 && sys(SYS_statfs, "/dev/shm", &fs) == 0 && fs.f_type == TMPFS_MAGIC);
}

/* What is there for anybody, which this process's tables do not say: the holes of shared memory stay holes. */
static long present(const struct mm_vma *v, struct mm_list *existing)
{
    unsigned char *there = (unsigned char *)ENGINE->region;
    long bytes = 0, r;
    for (uint64_t at = v->start, n; at < v->end && bytes >= 0; at += n * MM_PAGE) {
        n = (v->end - at < AT_ONCE ? v->end - at : AT_ONCE) / MM_PAGE;
        if ((r = sys(SYS_mincore, at, n * MM_PAGE, there)) < 0)
            return r;
        for (uint64_t i = 0, k = 0; i < n && bytes >= 0; i = k) {
            while (k < n && ((there[k] ^ there[i]) & 1) == 0)
                k++;
            r = there[i] & 1 ? mm_fetched(v, (struct mm_span){ at + i * MM_PAGE, at + k * MM_PAGE }, NULL, existing) : 0;
            bytes = r < 0 ? r : bytes + r;
        }
    }
    return bytes;
}

/* Bytes, or -errno.  Nobody can tell what was swapped out from a hole: -EFBIG, these would be filled, and are too many.  most: what of
 * that may be. */
static long fetched(struct mm_tables *t, const struct mm_vma *v, uint64_t most, struct mm_list *existing)
{
    uint8_t *shares = &t->shares[v - t->area];
    long r, bytes = 0;
    if (!(*shares & MM_SWAPPED_OUT) && is_of_memory(t->device[v - t->area])) {
        *shares |= MM_LOOKED_FOR_HOLES;
        return present(v, existing);
    }
    if (is_anonymous(t->path + v->path) && v->end - v->start > most)   /* which has all of its pages, or none yet */
        return -EFBIG;
    for (struct mm_span s = { v->start, v->start }; s.start < v->end; s.start = s.end) {
        s.end = v->end - s.start < AT_ONCE ? v->end : s.start + AT_ONCE;
        r = mm_fetched(v, s, NULL, existing);
        if (r < 0)
            return r;
        if ((uint64_t)(bytes += r) > most)
            return -EFBIG;
    }
    return bytes;
}

/* Of all that is copied beside the stage, whoever else copies some. */
int mm_claim_room(uint64_t bytes)
{
    uint64_t *room = &mm_memory_head->tree.room, had = __atomic_load_n(room, __ATOMIC_ACQUIRE);
    while (bytes > STAGE && had >= bytes)
        if (__atomic_compare_exchange_n(room, &had, had - bytes, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return 1;
    return bytes <= STAGE;
}

/* One image of all has what several processes have mapped alike.  Whose it is does not change as long as that one has it mapped: it knows
 * what has changed since. */
static int is_mine(const struct mm_tables *t, const struct mm_vma *v)
{
    struct mm_tree *tree = &mm_memory_head->tree;
    uint32_t me = (uint32_t)sys_getpid();
    uint64_t key = 14695981039346656037ul;
    const uint64_t words[] = { (uint64_t)shared_kind(t, v), v->inode, v->offset, v->end - v->start };
    for (unsigned i = 0; i < 4; i++)
        key = (key ^ words[i]) * 1099511628211ul, key ^= key >> 29;
    key |= 1;
    for (uint64_t i = 0; i < MM_CLAIMS; i++) {
        uint64_t *at = &tree->claimed[(key + i) % MM_CLAIMS], none = 0;
        uint32_t *whose = &tree->claimer[(key + i) % MM_CLAIMS];
        if (__atomic_compare_exchange_n(at, &none, key, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            __atomic_store_n(whose, me, __ATOMIC_RELEASE);
            return 1;
        }
        if (none == key)
            return __atomic_load_n(whose, __ATOMIC_ACQUIRE) == me;
    }
    return 1;                              /* twice is as good as once */
}

/* Mapped twice it is saved once. */
static int is_again(const struct mm_tables *t, const struct mm_vma *v)
{
    for (const struct mm_vma *o = t->area; o < v; o++)
        if (o->shared && o->inode == v->inode && o->offset == v->offset && o->end - o->start == v->end - v->start
            && shared_kind(t, o) == shared_kind(t, v))
            return 1;
    return 0;
}

int mm_shares_memory(const struct mm_tables *t)
{
    for (const struct mm_vma *v = t->area; v < t->area + t->areas; v++)
        if (counts(v) && shared_memory(t, v))
            return 1;
    return 0;
}

/* -- what has changed ------------------------------------------------------------------------------------------------------------------- */

/* The kernel's record of changes is of each process's own: of shared memory each page's hash is kept from the image before.  Of a product
 * both halves count: its lower one alone takes the highest bit for itself only, and the next word could undo that. */
static uint64_t mixed(uint64_t word)
{
    unsigned __int128 product = (unsigned __int128)word * 0x9e3779b97f4a7c15ul;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t page_hash(const uint64_t *word)
{
    uint64_t lane[4] = { 1, 2, 3, 4 }, hash = 0;
    for (unsigned i = 0; i < MM_PAGE / sizeof *word; i += 4)
        for (unsigned k = 0; k < 4; k++)
            lane[k] = mixed(lane[k] ^ word[i + k]);
    for (unsigned k = 0; k < 4; k++)
        hash = mixed(hash ^ lane[k]);
    return hash ? hash : 1;                /* 0: the page was not there */
}

static struct mm_hashed *hashed(struct mm_hashed *list, uint32_t count, const struct mm_vma *v)
{
    for (struct mm_hashed *h = list; h < list + count; h++)
        if (h->start == v->start && h->end == v->end && h->inode == v->inode && h->offset == v->offset)
            return h;
    return NULL;
}

/* Where this mapping's are, one for each page: those of the image before, or all 0.  NULL: there is no room, or no need of them. */
static uint64_t *hashes_of(const struct mm_vma *v)
{
    struct mm_hashes *all = &ENGINE->hashes;
    const struct mm_hashed *before = hashed(all->before, all->known, v);
    uint64_t pages = (v->end - v->start) / MM_PAGE, at = before ? before->at : all->used;
    int is_room = !all->unused && (before || pages <= HASHES - all->used);
    all->is_full |= !is_room && all->used;
    if (!is_room || all->count == HASHED)
        return NULL;
    all->now[all->count++] = (struct mm_hashed){ v->start, v->end, v->inode, v->offset, at };
    if (!before) {
        own_fill(&all->hash[at], 0, pages * sizeof *all->hash);
        all->used += pages;
    }
    return &all->hash[at];
}

/* Of the pages that are there now, `first` among existing: those that were not in the image before as they are.  Bytes. */
static long changed_pages(const struct mm_vma *v, const struct mm_list *existing, uint64_t first, struct mm_list *written)
{
    uint64_t *hash = hashes_of(v), at = v->start;
    long bytes = 0, r = 0;
    if (!(v->protection & PROT_READ))
        sys(SYS_mprotect, v->start, v->end - v->start, v->protection | PROT_READ);
    for (const struct mm_span *s = existing->span + first; s < existing->span + existing->count && r >= 0; s++) {
        if (hash)
            own_fill(&hash[(at - v->start) / MM_PAGE], 0, (s->start - at) / MM_PAGE * sizeof *hash);
        for (at = s->start; at < s->end && r >= 0; at += MM_PAGE) {
            uint64_t now = hash ? page_hash((const uint64_t *)at) : 1, *then = hash ? &hash[(at - v->start) / MM_PAGE] : NULL;
            if (then && *then == now)
                continue;
            if (then)
                *then = now;
            r = written ? mm_append_span(written, at, at + MM_PAGE, v) : 0;
            bytes += MM_PAGE;
        }
    }
    if (hash)
        own_fill(&hash[(at - v->start) / MM_PAGE], 0, (v->end - at) / MM_PAGE * sizeof *hash);
    if (!(v->protection & PROT_READ))
        sys(SYS_mprotect, v->start, v->end - v->start, v->protection);
    return r < 0 ? r : bytes;
}

/* What is there of a mapping, into existing, and what of it has changed, if the image is to have that.  Bytes to be saved, or -errno. */
long mm_changes_shared(struct mm_tables *t, const struct mm_vma *v, uint64_t most, struct mm_list *written, struct mm_list *existing)
{
    uint64_t first = existing->count;
    long r = is_again(t, v) || !is_mine(t, v) ? 0 : fetched(t, v, most, existing);
    return r <= 0 ? r : changed_pages(v, existing, first, written);
}

/* Before the first.  since_before: else what was known counts no more; tracking: else the next image is complete, too. */
void mm_changes_shared_begin(int since_before, int tracking)
{
    struct mm_hashes *all = &ENGINE->hashes;
    all->unused = !tracking;
    all->known = since_before && !all->is_full ? all->count : 0;
    own_copy(all->before, all->now, all->known * sizeof all->now[0]);
    all->used = all->known ? all->used : 0;
    all->count = all->is_full = 0;
}

/* This process stands, and others do not yet: what it has of the image before is its own this time, too. */
void mm_claim_again(const struct mm_tables *t)
{
    const struct mm_hashes *all = &ENGINE->hashes;
    for (const struct mm_vma *v = t->area; all->count && v < t->area + t->areas; v++)
        if (counts(v) && shared_memory(t, v) && hashed(ENGINE->hashes.now, all->count, v))
            is_mine(t, v);
}

/* -- a copy of the process ------------------------------------------------------------------------------------------------------------ */

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
