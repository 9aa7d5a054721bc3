/* move.c - the process that comes back lies elsewhere: the kernel chooses addresses at random.
 *
 * A program's mappings are made anew where they were (restore.c).  What cannot be made goes there: of this library a copy,
 * in which addresses of itself and of other libraries are those of then; the kernel's own pages and the stack by mremap;
 * and the kernel is told where heap, stack and arguments lie.  By the variables that the image has of the library it is
 * known where each of its pointers into another one led.
 */
#include "memory/image_engine.h"
#include "base/check.h"

#include <elf.h>

extern char __ehdr_start[] __attribute__((visibility("hidden"))), _end[] __attribute__((visibility("hidden")));

#define WHOLE_PAGES(n) (((n) + MM_PAGE - 1) & ~(MM_PAGE - 1))
#define TRIES 20
#define PR_SET_MM 35
#define PR_SET_MM_MAP 14

static uint64_t library(void) { return (uint64_t)__ehdr_start; }
static uint64_t library_length(void) { return WHOLE_PAGES((uint64_t)_end - (uint64_t)__ehdr_start); }

static const Elf64_Phdr *writable_part(void)
{
    const Elf64_Phdr *p = (const Elf64_Phdr *)(__ehdr_start + ((const Elf64_Ehdr *)__ehdr_start)->e_phoff);
    while (p->p_type != PT_LOAD || !(p->p_flags & PF_W))
        p++;
    return p;
}

/* Its build-id, 0s behind it: only the very same library knows what its variables in an image mean. */
void mm_build_of_library(uint8_t id[MM_BUILD_ID])
{
    const Elf64_Ehdr *file = (const Elf64_Ehdr *)__ehdr_start;
    const Elf64_Phdr *p = (const Elf64_Phdr *)(__ehdr_start + file->e_phoff);
    own_fill(id, 0, MM_BUILD_ID);
    for (int i = 0; i < file->e_phnum; i++) {
        const char *at = __ehdr_start + p[i].p_vaddr, *end = at + p[i].p_memsz;
        while (p[i].p_type == PT_NOTE && p[i].p_align <= 4 && at + sizeof(Elf64_Nhdr) < end) {
            const Elf64_Nhdr *note = (const Elf64_Nhdr *)at;
            const char *name = at + sizeof *note, *is = name + ((note->n_namesz + 3) & ~3u);
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && own_equal(name, "GNU") && note->n_descsz <= MM_BUILD_ID)
                own_copy(id, is, note->n_descsz);
            at = is + ((note->n_descsz + 3) & ~3u);
        }
    }
}

static uint64_t *variables(void) { return (uint64_t *)((library() + writable_part()->p_vaddr + 7) & ~7ul); }

/* -- into an image ------------------------------------------------------------------------------- */

/* Words of /proc/self/stat, counted from 1: code, data, heap, stack, arguments and environment as the kernel knows them. */
static int places(uint64_t *place)
{
    static const unsigned char word[] = { 26, 27, 45, 46, 47, 0, 28, 48, 49, 50, 51 };
    char *text = ENGINE->maps;
    long fd = sys_openat(AT_FDCWD, "/proc/self/stat", O_RDONLY | O_CLOEXEC, 0), n = fd < 0 ? 0 : sys(SYS_read, fd, text, 4096);
    if (fd >= 0)
        sys_close((int)fd);
    own_fill(place, 0, sizeof ENGINE->layout.place);
    const char *p = text;
    for (long i = 0; i < n; i++)
        if (text[i] == ')')
            p = text + i + 2;
    text[n > 0 ? n : 0] = 0;
    for (int number = 3; *p; number++) {
        uint64_t value = own_number(&p, 10);
        for (unsigned i = 0; i < sizeof word; i++)
            if (word[i] == number)
                place[i] = value;
        while (*p && *p != ' ')
            p++;
        p += *p == ' ';
    }
    place[5] = (uint64_t)sys(SYS_brk, 0);
    return n > 0;
}

/* What the kernel told the program when that began (/proc/self/auxv): whoever looks at it from outside finds it by that. */
#define MOST_TOLD 768
static __attribute__((section("mm_program"))) struct { uint64_t bytes; char words[MOST_TOLD]; } told;

static void note_told(void)
{
    long fd = sys_openat(AT_FDCWD, "/proc/self/auxv", O_RDONLY | O_CLOEXEC, 0), n = fd < 0 ? 0 : sys(SYS_read, fd, told.words, MOST_TOLD);
    if (fd >= 0)
        sys_close((int)fd);
    told.bytes = n > 0 && n < MOST_TOLD ? (uint64_t)n : 0;
}

void mm_layout_of(struct mm_layout *out)
{
    MM_ASSERT((uint64_t)__stop_mm_program - (uint64_t)variables() <= sizeof out->variable);
    struct mm_engine *e = ENGINE;
    out->library = library();
    if (e->places_known && !e->places_change) {    /* all but the heap's end stay, unless the program changes them */
        out->place[5] = (uint64_t)sys(SYS_brk, 0);
    } else {
        e->places_known = (uint32_t)places(out->place);
        note_told();
    }
    own_copy(out->variable, variables(), sizeof out->variable);
}

/* What one of the library's variables was at the instant. */
const void *mm_as_it_was(const struct mm_layout *of, const void *variable)
{
    return (const char *)of->variable + ((uint64_t)variable - (uint64_t)variables());
}

/* -- out of one ---------------------------------------------------------------------------------- */

static int meets(uint64_t start, uint64_t length, const struct mm_vma *v) { return v->start < start + length && start < v->end; }

/* Where a mapping of now that cannot be made belongs; its own place where that is all the same. */
static uint64_t mapping_place(const struct mm_vma *n)
{
    struct mm_engine *e = ENGINE;
    for (uint64_t i = 0; i < e->then.areas; i++) {
        const struct mm_vma *v = &e->then.area[i];
        if (n->kind == AREA_STACK && v->kind == AREA_STACK)
            return v->end - (n->end - n->start);
        if (n->kind == AREA_SPECIAL && v->kind == AREA_SPECIAL && v->end - v->start == n->end - n->start
            && own_equal(e->then.path + v->path, e->now.path + n->path))
            return v->start;
    }
    return n->start;
}

static int moves(const struct mm_vma *n)
{
    return (n->kind == AREA_SPECIAL || n->kind == AREA_STACK) && mapping_place(n) != n->start;
}

/* By chance something lies where another thing belongs: once more, with other addresses. */
static void once_more(void)
{
    struct mm_member *member = mm_this_member();
    char *text[2] = { ENGINE->stage, ENGINE->stage + STAGE / 4 }, **list[2];
    const char *from[2] = { "/proc/self/cmdline", "/proc/self/environ" };
    if (++member->tries > TRIES)
        return;
    for (int i = 0; i < 2; i++) {
        long fd = sys_openat(AT_FDCWD, from[i], O_RDONLY | O_CLOEXEC, 0), n = 0, r;
        while (fd >= 0 && (r = sys(SYS_read, fd, text[i] + n, STAGE / 8 - n)) > 0)
            n += r;
        sys_close((int)fd);
        char **to = list[i] = (char **)(text[i] + STAGE / 8);
        for (char *p = text[i]; p < text[i] + n; p += own_length(p) + 1)
            *to++ = p;
        *to = 0;
    }
    member->comes_back = 1;
    sys(SYS_execve, "/proc/self/exe", list[0], list[1]);
    member->comes_back = 0;
}

static void make_room_certain(const struct mm_layout *was)
{
    struct mm_engine *e = ENGINE;
    int taken = 0;
#ifdef MM_CHECKED                          /* what is rare happens every time */
    taken = mm_this_member()->tries == 0;
#endif
    for (uint64_t i = 0; i < e->now.areas; i++) {
        const struct mm_vma *n = &e->now.area[i];
        taken |= was->library != library() && meets(was->library, library_length(), n);
        for (uint64_t k = 0; moves(n) && k < e->now.areas; k++) {
            const struct mm_vma *other = &e->now.area[k];
            taken |= other->kind != AREA_PLAIN && meets(mapping_place(n), n->end - n->start, other);
        }
    }
    if (taken)
        once_more();
    if (taken && mm_this_member()->tries > TRIES)
        mm_cannot_come_back("what it needs is taken, again and again", "");
}

/* What is neither present nor swapped is in the twin as it is here; most of the library's arrays was never used. */
static void copy_pages(uint64_t from, uint64_t end, uint64_t delta)
{
    enum { PAGES = 512 };
    uint64_t page[PAGES];
    int map = (int)sys_openat(AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    for (; from < end; from += PAGES * MM_PAGE) {
        uint64_t pages = end - from < PAGES * MM_PAGE ? (end - from) / MM_PAGE : PAGES;
        int told = sys(SYS_pread64, map, page, pages * 8, from / MM_PAGE * 8) == (long)(pages * 8);
        for (uint64_t i = 0; i < pages; i++)
            if (!told || page[i] >> 62)
                own_copy((void *)(from + i * MM_PAGE + delta), (void *)(from + i * MM_PAGE), MM_PAGE);
    }
    if (map >= 0)
        sys_close(map);
}

static void map_twin(const struct mm_vma *n, uint64_t delta)
{
    struct mm_engine *e = ENGINE;
    const char *path = e->now.path + n->path;
    int fd = path[0] == '/' ? (int)sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;
    int flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE | (fd < 0 ? MAP_ANONYMOUS : 0);
    int copied = n->end > library() + writable_part()->p_vaddr;
    int protection = (int)n->protection | (copied ? PROT_READ | PROT_WRITE : 0);
    long r = sys(SYS_mmap, n->start + delta, n->end - n->start, protection, flags, fd, fd < 0 ? 0 : n->offset);
    if (r != (long)(n->start + delta))
        mm_cannot_come_back("the preload library cannot be where it was: ", path);
    if (fd >= 0)
        sys_close(fd);
    if (copied)
        copy_pages(n->start, n->end, delta);
}

static int in_tables(const struct mm_tables *t, uint64_t address)
{
    for (uint64_t i = 0; i < t->areas; i++)
        if (t->area[i].kind == AREA_PLAIN && t->area[i].start <= address && address < t->area[i].end)
            return 1;
    return 0;
}

/* In the copy, where all of it still may be written. */
static void translate(const struct mm_layout *was, uint64_t delta)
{
    struct mm_engine *e = ENGINE;
    const uint64_t *fresh = variables();
    uint64_t *copy = (uint64_t *)((uint64_t)fresh + delta);
    for (unsigned i = 0; i < MM_VARIABLES; i++) {
        uint64_t word = fresh[i], old = was->variable[i];
        if (word >= library() && word < library() + library_length())
            copy[i] = word + delta;
        else if (word != old && (word - old) % MM_PAGE == 0 && in_tables(&e->now, word) && in_tables(&e->then, old))
            copy[i] = old;
    }
}

static void copy_library(const struct mm_layout *was)
{
    struct mm_engine *e = ENGINE;
    uint64_t delta = was->library - library();
    for (uint64_t i = 0; i < e->now.areas; i++)
        if (e->now.area[i].kind == AREA_OURS && meets(library(), library_length(), &e->now.area[i]))
            map_twin(&e->now.area[i], delta);
    translate(was, delta);
    for (uint64_t i = 0; i < e->now.areas; i++) {
        const struct mm_vma *n = &e->now.area[i];
        if (n->kind == AREA_OURS && meets(library(), library_length(), n))
            sys(SYS_mprotect, n->start + delta, n->end - n->start, n->protection);
    }
}

/* Goes on in the library where it was: its own instructions are there from here on. */
void mm_move_library(const struct mm_layout *was, void (*go_on)(void))
{
    make_room_certain(was);
    uint64_t delta = was->library - library();
    if (delta)
        copy_library(was);
    ((void (*)(void))((uint64_t)go_on + delta))();
    __builtin_unreachable();
}

/* Of a process in which nothing was moved yet: heap, stack or library. */
int mm_lies_elsewhere(const struct mm_layout *was)
{
    uint64_t place[11];
    places(place);
    return place[4] != was->place[4] || place[6] != was->place[6];
}

/* When everything else is gone. */
void mm_move_rest(const struct mm_layout *was, int elsewhere)
{
    struct mm_engine *e = ENGINE;
    for (uint64_t i = 0; i < e->now.areas; i++) {
        const struct mm_vma *n = &e->now.area[i];
        uint64_t to = mapping_place(n), length = n->end - n->start;
        if (moves(n) && sys(SYS_mremap, n->start, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to) != (long)to)
            mm_cannot_come_back("the kernel does not move ", e->now.path + n->path);
    }
    struct { uint64_t place[11]; const void *auxiliary; uint32_t auxiliary_size, exe; } map = { .exe = ~0u };
    const typeof(told) *its = mm_as_it_was(was, &told);
    map.auxiliary = its->words;
    map.auxiliary_size = (uint32_t)its->bytes;
    own_copy(map.place, was->place, sizeof map.place);
    if (elsewhere && sys(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) < 0)
        mm_cannot_come_back("the kernel does not take its heap and stack for where they were", "");
}
