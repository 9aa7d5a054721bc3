/* elf.c - which programs the dynamic loader puts our library into, read from their files before they are executed.
 */
#define _GNU_SOURCE
#include "process/program.h"
#include "base/reserve_fds.h"
#include "base/sys.h"

#include <elf.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statfs.h>

#define SCRIPTS 5                      /* as the kernel follows interpreters */
#define ST_NOSUID 2

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#define LOADER "/lib64/ld-linux-x86-64.so.2"
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#define LOADER "/lib/ld-linux-aarch64.so.1"
#endif

#define PRIVILEGES(which) "it changes its privileges (" which "): the loader ignores the preload library"

/* As execve(2) and ld.so(8) have it. */
const char *mm_gains_rights(const struct stat *st, int fd)
{
    struct statfs where;
    uid_t uid = getuid();
    gid_t gid = getgid();
    const char *why = NULL;
    if (uid != geteuid() || gid != getegid())
        return PRIVILEGES("real and effective user or group differ");
    if ((st->st_mode & S_ISUID) && st->st_uid != uid)
        why = PRIVILEGES("set-user-ID");
    else if ((st->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && st->st_gid != gid)
        why = PRIVILEGES("set-group-ID");
    else if (uid != 0 && sys(SYS_fgetxattr, fd, "security.capability", 0, 0) > 0)     /* root has them all anyway */
        why = PRIVILEGES("file capabilities");
    return why && sys(SYS_fstatfs, fd, &where) == 0 && (where.f_flags & ST_NOSUID) ? NULL : why;
}

/* NULL when it has this process's rights and no others. */
static const char *privileges(const struct stat *st, int fd)
{
    const char *why = mm_gains_rights(st, fd);
    return why && getuid() == geteuid() && getgid() == getegid() && sys(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? NULL : why;
}

/* The program's entries, most of which come with one call. */
struct entries { int fd; const Elf64_Ehdr *head; Elf64_Phdr some[16]; };

/* The number is one more than that before, from 0 on.  NULL: there is none, or not of the size that the kernel takes. */
static const Elf64_Phdr *entry_of(struct entries *all, int number)
{
    const Elf64_Ehdr *head = all->head;
    int left = head->e_phnum - number, first = number % 16;
    long wanted = (left < 16 ? left : 16) * (long)sizeof *all->some;
    if (left <= 0 || number >= 256 || head->e_phentsize != sizeof *all->some)
        return NULL;
    if (first == 0 && sys_pread(all->fd, all->some, wanted, head->e_phoff + (uint64_t)number * sizeof *all->some) != wanted)
        return NULL;
    return &all->some[first];
}

/* The name of the dynamic loader into text, or "" without one. */
static void loader(int fd, const Elf64_Ehdr *head, char *text, size_t room)
{
    struct entries all = { .fd = fd, .head = head };
    const Elf64_Phdr *entry;
    *text = 0;
    for (int i = 0; (entry = entry_of(&all, i)) != NULL; i++) {
        if (entry->p_type == PT_INTERP) {
            long n = sys_pread(fd, text, entry->p_filesz < room - 1 ? entry->p_filesz : room - 1, entry->p_offset);
            text[n > 0 ? n : 0] = 0;
            return;
        }
    }
}

/* A program file's own dynamic symbols, by the table that the dynamic loader looks names up in (DT_GNU_HASH). */
struct defined { int fd; off_t table; uint32_t buckets, first, words, shift; };

/* The last symbol of a bucket has an odd hash there; its name is as good as its 32 bits. */
static int defines(const struct defined *d, const char *name)
{
    uint32_t hash = 5381, bucket, found = 0;
    uint64_t word;
    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    off_t buckets = d->table + 16 + 8l * d->words;
    if (sys_pread(d->fd, &word, 8, d->table + 16 + 8l * (hash / 64 % d->words)) != 8
        || !(word >> hash % 64 & word >> (hash >> (d->shift & 31)) % 64 & 1)
        || sys_pread(d->fd, &bucket, 4, buckets + 4l * (hash % d->buckets)) != 4 || bucket < d->first)
        return 0;
    off_t at = buckets + 4l * d->buckets + 4l * (bucket - d->first);
    for (int i = 0; i < 1000 && !(found & 1); i++, at += 4) {
        if (sys_pread(d->fd, &found, 4, at) != 4)
            return 0;
        if ((found | 1) == (hash | 1))
            return 1;
    }
    return 0;
}

/* The beginning of the first library's name that a program needs, "" without one, and its own symbols: words is 0 without
 * any. */
static void look_up_names(int fd, const Elf64_Ehdr *head, char *first_needed, size_t room, struct defined *own)
{
    Elf64_Phdr entry[16];
    Elf64_Dyn dynamic[64];
    uint64_t needed = 0, strings = 0, hash = 0, first = 0;
    long count = sys_pread(fd, (char *)entry, sizeof entry, head->e_phoff) / (long)sizeof *entry, n = 0;
    *own = (struct defined){ .fd = fd };
    for (long i = 0; i < count && i < head->e_phnum && head->e_phentsize == sizeof *entry; i++)
        if (entry[i].p_type == PT_DYNAMIC)
            n = sys_pread(fd, (char *)dynamic, sizeof dynamic, entry[i].p_offset) / (long)sizeof *dynamic;
    for (long i = n - 1; i >= 0; i--) {
        if (dynamic[i].d_tag == DT_NEEDED)
            needed = dynamic[i].d_un.d_val;
        if (dynamic[i].d_tag == DT_STRTAB)
            strings = dynamic[i].d_un.d_ptr;
        if (dynamic[i].d_tag == DT_GNU_HASH)
            hash = dynamic[i].d_un.d_ptr;
    }
    for (long i = 0; i < count && i < head->e_phnum; i++) {
        const Elf64_Phdr *load = &entry[i];
        if (load->p_type == PT_LOAD && strings && strings - load->p_vaddr < load->p_filesz && needed)
            first = strings - load->p_vaddr + load->p_offset + needed;
        if (load->p_type == PT_LOAD && hash && hash - load->p_vaddr < load->p_filesz)
            own->table = (off_t)(hash - load->p_vaddr + load->p_offset);
    }
    long length = first ? sys_pread(fd, first_needed, room - 1, (off_t)first) : 0;
    first_needed[length > 0 ? length : 0] = 0;
    if (!own->table || sys_pread(fd, (char *)&own->buckets, 16, own->table) != 16 || !own->buckets)
        own->words = 0;
}

/* Has the program a sanitizer's runtime that takes memory and threads for its own?  gcc's is the first library that it
 * needs, and ends the program where another comes before it; clang's is linked into it, and does not bear ours. */
static int sanitized(int fd, const Elf64_Ehdr *head)
{
    char name[16];
    struct defined d;
    look_up_names(fd, head, name, sizeof name, &d);
    if (strncmp(name, "libasan.so", 10) == 0 || strncmp(name, "libtsan.so", 10) == 0 || strncmp(name, "libhwasan.so", 12) == 0)
        return 1;
    return d.words && (defines(&d, "__asan_init") || defines(&d, "__tsan_init") || defines(&d, "__hwasan_init"));
}

/* A C library that is its own loader, started as a program, preloads like any loader: musl's. */
static int is_c_library(int fd, const Elf64_Ehdr *head)
{
    char name[16];
    struct defined d;
    look_up_names(fd, head, name, sizeof name, &d);
    return d.words && defines(&d, "__libc_start_main");
}

/* The dynamic loader, started as a program: it preloads for the program that it is given as it does for any. */
static int is_loader(const struct stat *st)
{
    struct stat loader;
    return sys(SYS_newfstatat, AT_FDCWD, LOADER, &loader, 0) == 0 && loader.st_dev == st->st_dev && loader.st_ino == st->st_ino;
}

static const char *why_foreign(const Elf64_Ehdr *e)
{
    return e->e_ident[EI_CLASS] != ELFCLASS64 ? "it is a 32-bit program"
         : e->e_machine != MACHINE ? "it is for another kind of processor" : NULL;
}

static const char *why_not_elf(int fd, const char *head, const struct stat *st, struct mm_program *found)
{
    const Elf64_Ehdr *e = (const Elf64_Ehdr *)head;
    found->is_elf = found->refuses = 1;
    const char *why = privileges(st, fd);
    found->shows_calls = !why;
    loader(fd, e, found->loader, sizeof found->loader);
    if (!*found->loader && is_loader(st)) {
        found->refuses = 0;
        return NULL;
    }
    if (*found->loader ? strstr(found->loader, "ld-musl") || strstr(found->loader, "linker64") : is_c_library(fd, e))
        return "its C library is not the GNU one";
    if (!*found->loader) {
        found->refuses = 0;
        return "it is static: there is no dynamic loader to preload anything";
    }
    if (sanitized(fd, e))
        return "it is built with AddressSanitizer or ThreadSanitizer, which do not work beside this library";
    found->refuses = 0;
    return why;
}

/* What the first note of this owner and type says (type 0: any), as much as there is room for: its bytes, -1 without one. */
static long note_of(int fd, const char *owner, uint32_t type, char *text, size_t room)
{
    Elf64_Ehdr e;
    struct entries all = { .fd = fd, .head = &e };
    const Elf64_Phdr *entry;
    Elf64_Nhdr note;
    char name[4];                      /* as long as those of all owners that are asked for, zeros included */
    if (sys_pread(fd, (char *)&e, sizeof e, 0) != sizeof e || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0
        || e.e_ident[EI_CLASS] != ELFCLASS64)
        return -1;
    for (int i = 0; (entry = entry_of(&all, i)) != NULL; i++) {
        if (entry->p_type != PT_NOTE)
            continue;
        for (uint64_t at = 0, many = 0; at < entry->p_filesz && many < 256; many++) {
            if (sys_pread(fd, (char *)&note, sizeof note, entry->p_offset + at) != sizeof note)
                break;
            uint64_t from = at + sizeof note;
            at = from + ((note.n_namesz + 3ull) & ~3ull);
            if (note.n_namesz == sizeof name && (!type || note.n_type == type)
                && sys_pread(fd, name, sizeof name, entry->p_offset + from) == sizeof name
                && strncmp(name, owner, sizeof name) == 0)
                return sys_pread(fd, text, note.n_descsz < room ? note.n_descsz : room, entry->p_offset + at);
            at += (note.n_descsz + 3ull) & ~3ull;
        }
    }
    return -1;
}

/* Has the program a note of the Go linker?  Such a one calls the kernel by itself, also where our library is loaded. */
int mm_calls_by_itself(int fd)
{
    return note_of(fd, "Go", 0, NULL, 0) >= 0;
}

long mm_build_id(int fd, char *id, size_t room)
{
    return note_of(fd, "GNU", NT_GNU_BUILD_ID, id, room);
}

/* A file that may be a program, to look into it: nothing else, since to open a FIFO is to wait for its writer.  One that may be
 * executed but not read is open as no more than a file (O_PATH). */
long mm_open_program(int dir, const char *path, int flags)
{
    struct stat st;
    long e = sys(SYS_newfstatat, dir, path, &st, flags & AT_SYMLINK_NOFOLLOW);
    if (e < 0 || !S_ISREG(st.st_mode))
        return e < 0 ? e : -EACCES;
    flags = flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0;
    long fd = mm_open_spare(dir, path, O_RDONLY | flags, 0);
    return fd == -EACCES && sys(SYS_faccessat, dir, path, X_OK) == 0 ? mm_open_spare(dir, path, O_PATH | flags, 0) : fd;
}

/* What the kernel runs it with: as its first line says, or its own table, which may give it rights: 2.  0: nothing. */
static int find_interpreter(int fd, char *head, struct mm_program *found)
{
    if (head[0] != '#' || head[1] != '!')
        return mm_misc_program(fd, head, found->interpreter, sizeof found->interpreter);
    char *name = head + 2 + strspn(head + 2, " \t");
    name[strcspn(name, " \t\n")] = 0;
    memcpy(found->interpreter, *name ? name : "/bin/sh", *name ? strlen(name) + 1 : sizeof "/bin/sh");
    return 1;
}

static const char *why_not(int fd, struct mm_program *found, long (*before)(int fd), int depth)
{
    char head[MM_PROGRAM_HEAD + 1] = { 0 };
    struct stat st;
    long e = before ? before(fd) : 0;
    if (e < 0) {
        found->refused = (int32_t)e;
        return NULL;
    }
    long n = sys_pread(fd, head, sizeof head - 1, 0);
    if (sys(SYS_fstat, fd, &st) < 0 || !S_ISREG(st.st_mode))
        return NULL;
    if (n < 0) {
        const char *why = privileges(&st, fd);
        return why ? why : "it cannot be read (a dynamic program is tracked all the same)";
    }
    int is_elf = n >= (long)sizeof(Elf64_Ehdr) && memcmp(head, ELFMAG, SELFMAG) == 0;
    const char *foreign = is_elf ? why_foreign((const Elf64_Ehdr *)head) : NULL;
    if (is_elf && !foreign)
        return why_not_elf(fd, head, &st, found);
    const char *why = foreign;
    int runs = depth < SCRIPTS ? find_interpreter(fd, head, found) : 0;
    long interpreter = runs ? mm_open_program(AT_FDCWD, found->interpreter, 0) : -1;
    if (interpreter >= 0) {
        why = why_not((int)interpreter, found, before, depth + 1);
        mm_close_spare((int)interpreter);
    }
    const char *gains = runs == 2 ? privileges(&st, fd) : NULL;
    if (gains) {
        found->shows_calls = 0;
        why = why ? why : gains;
    }
    if (!foreign)
        return why;
    found->interpreter[0] = 0;
    found->is_elf = found->refuses = 1;        /* what emulates a processor hands the environment on to the program */
    return foreign;
}

/* Why the program behind a descriptor will not be tracked, NULL when it will be (or cannot be executed at all). */
const char *mm_why_not(int fd, struct mm_program *found) { return mm_why_not_after(fd, found, NULL); }

const char *mm_why_not_after(int fd, struct mm_program *found, long (*before)(int fd))
{
    *found = (struct mm_program){ 0 };
    return why_not(fd, found, before, 0);
}
