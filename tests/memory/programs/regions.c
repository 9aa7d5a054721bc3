/* Ten thousand small mappings that come and go, grow and shrink, move, change protection and content between its checkpoints.
 * A copy of what each page must hold is a function of the seed: it is made anew after every return and compared with what is there.
 *
 * regions SEED [SLOTS [CHECKPOINTS]]; exit status 0, or 1 with what was wrong. */
#define _GNU_SOURCE
#include <metamori.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, ROOM = 8, MOST = 20000 };   /* pages of a slot: the last one is never mapped */
struct slot { int pages, protection, file; unsigned version[ROOM]; };   /* a version of 0: never written, or given back */
struct world { unsigned long long random; struct slot slot[MOST]; };

static struct world now, copy;
static int slots = 10000;
static char *arena;
static int base;
static char from_file[ROOM][PAGE];

static unsigned pick(struct world *w, unsigned below)
{
    w->random = w->random * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(w->random >> 33) % below;
}

static void fail(const char *what, int slot, int page)
{
    fprintf(stderr, "%s: slot %d, page %d: %m\n", what, slot, page);
    _exit(1);
}

static char *place(int slot, int page) { return arena + ((long)slot * ROOM + page) * PAGE; }

static void must(int holds, const char *what, int slot)
{
    if (!holds)
        fail(what, slot, -1);
}

static void map(struct slot *s, int i, int from, int pages)
{
    int flags = MAP_PRIVATE | MAP_FIXED | (s->file ? 0 : MAP_ANONYMOUS);
    must(mmap(place(i, from), (long)pages * PAGE, s->protection, flags, s->file ? base : -1, s->file ? (long)from * PAGE : 0)
         != MAP_FAILED, "mmap", i);
}

static void put(int i, int page, unsigned version)
{
    unsigned *p = (unsigned *)place(i, page);
    p[0] = p[PAGE / 8] = p[PAGE / 4 - 1] = version * 2654435761u + (unsigned)(i * ROOM + page);
}

/* One change of one slot; of the copy only the books. */
static void change(struct world *w, int real)
{
    int i = (int)pick(w, (unsigned)slots), what = (int)pick(w, 12);
    struct slot *s = &w->slot[i];
    static const int protections[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC };
    if (!s->pages) {
        s->pages = 1 + (int)pick(w, ROOM - 1);
        s->protection = PROT_READ | PROT_WRITE;
        s->file = pick(w, 4) == 0;
        memset(s->version, 0, sizeof s->version);
        if (real)
            map(s, i, 0, s->pages);
        what = 11;
    }
    if (what == 0) {
        if (real)
            must(munmap(place(i, 0), (long)s->pages * PAGE) == 0, "munmap", i);
        s->pages = 0;
    } else if (what == 1) {
        s->protection = protections[pick(w, 5)];
        if (real)
            must(mprotect(place(i, 0), (long)s->pages * PAGE, s->protection) == 0, "mprotect", i);
    } else if (what == 2 && s->pages > 1) {
        s->pages--;
        s->version[s->pages] = 0;
        if (real)
            must(munmap(place(i, s->pages), PAGE) == 0, "shrink", i);
    } else if (what == 3 && s->pages < ROOM - 1) {
        if (real)
            must(mremap(place(i, 0), (long)s->pages * PAGE, (long)(s->pages + 1) * PAGE, 0) != MAP_FAILED, "grow", i);
        s->version[s->pages++] = 0;
    } else if (what == 4) {
        int page = (int)pick(w, (unsigned)s->pages);
        s->version[page] = 0;
        if (real)
            must(madvise(place(i, page), PAGE, MADV_DONTNEED) == 0, "madvise", i);
    } else if (what == 5) {
        int to = (int)pick(w, (unsigned)slots);
        if (w->slot[to].pages)
            return;
        w->slot[to] = *s;
        s->pages = 0;
        /* what was written there belongs to another place now: written again, so that the copy knows what it says */
        if (real)
            must(mremap(place(i, 0), (long)w->slot[to].pages * PAGE, (long)w->slot[to].pages * PAGE,
                        MREMAP_MAYMOVE | MREMAP_FIXED, place(to, 0)) != MAP_FAILED, "move", i);
        for (int page = 0; page < w->slot[to].pages; page++)
            if (w->slot[to].version[page] && real) {
                mprotect(place(to, page), PAGE, PROT_READ | PROT_WRITE);
                put(to, page, w->slot[to].version[page]);
                mprotect(place(to, page), PAGE, w->slot[to].protection);
            }
    } else if (s->protection == (PROT_READ | PROT_WRITE)) {
        int page = (int)pick(w, (unsigned)s->pages);
        s->version[page]++;
        if (real)
            put(i, page, s->version[page]);
    }
}

static void compare_protections(void)
{
    static char line[8192];
    static signed char seen[MOST * ROOM];
    FILE *maps = fopen("/proc/self/maps", "r");
    memset(seen, -1, sizeof seen);
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char p[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, p) != 3)
            continue;
        for (unsigned long at = start; at < end; at += PAGE)
            if ((char *)at >= arena && (char *)at < place(slots, 0))
                seen[((char *)at - arena) / PAGE] = (signed char)((p[0] == 'r' ? PROT_READ : 0) | (p[1] == 'w' ? PROT_WRITE : 0)
                                                                  | (p[2] == 'x' ? PROT_EXEC : 0));
    }
    fclose(maps);
    for (int i = 0; i < slots; i++)
        for (int page = 0; page < ROOM; page++)
            if (seen[i * ROOM + page] != (page < copy.slot[i].pages ? copy.slot[i].protection : -1))
                fail("another protection", i, page);
}

static void compare(void)
{
    if (memcmp(&now, &copy, sizeof now))
        fail("the books differ", -1, -1);
    compare_protections();
    for (int i = 0; i < slots; i++) {
        struct slot *s = &copy.slot[i];
        if (s->pages && !(s->protection & PROT_READ))
            mprotect(place(i, 0), (long)s->pages * PAGE, PROT_READ);
        for (int page = 0; page < s->pages; page++) {
            unsigned want[3], *p = (unsigned *)place(i, page), *f = (unsigned *)from_file[page];
            for (int k = 0, at[] = { 0, PAGE / 8, PAGE / 4 - 1 }; k < 3; k++) {
                want[k] = s->version[page] ? s->version[page] * 2654435761u + (unsigned)(i * ROOM + page) : s->file ? f[at[k]] : 0;
                if (p[at[k]] != want[k]) {
                    fprintf(stderr, "version %u of a %s with protection %d: word %d is %x, not %x\n", s->version[page],
                            s->file ? "file" : "slot", s->protection, at[k], p[at[k]], want[k]);
                    fail("another content", i, page);
                }
            }
        }
        if (s->pages && !(s->protection & PROT_READ))
            mprotect(place(i, 0), (long)s->pages * PAGE, s->protection);
    }
}

int main(int count, char **word)
{
    unsigned long long seed = strtoull(word[1], 0, 10);
    slots = count > 2 ? atoi(word[2]) : slots;
    int checkpoints = count > 3 ? atoi(word[3]) : 10;
    base = open("base", O_RDWR | O_CREAT, 0600);
    for (int page = 0; page < ROOM; page++)
        memset(from_file[page], 'a' + page, PAGE);
    if (write(base, from_file, sizeof from_file) != sizeof from_file)
        return 2;
    arena = (char *)0x200000000000;        /* where nothing else is put */
    now.random = seed;
    long done = 0;
    for (int k = 0; k <= checkpoints; k++) {
        for (long end = k == 0 ? slots * 12l : done + 1 + pick(&now, (unsigned)slots); done < end; done++)
            change(&now, 1);
        int r = k < checkpoints ? metamori_checkpoint() : 1;
        fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
        /* from the seed again, without looking at what is there */
        memset(&copy, 0, sizeof copy);
        copy.random = seed;
        long again = 0;
        for (int j = 0; j <= k; j++)
            for (long end = j == 0 ? slots * 12l : again + 1 + pick(&copy, (unsigned)slots); again < end; again++)
                change(&copy, 0);
        compare();
    }
    printf("%ld changes, %llu\n", done, now.random);
    return 0;
}
