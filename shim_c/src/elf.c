/* elf.c - which programs the dynamic loader puts our library into, read from their files before they are executed.
 *
 * metamori/runtime/elf.py says the same to people.  Runs between fork and exec too: system calls only, no allocation.
 */
#include "shim.h"

#include <elf.h>
#include <sys/statfs.h>

#define SCRIPTS 5                      /* as the kernel follows interpreters */
#define ST_NOSUID 2

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#endif

static int secure(const struct stat *st, int fd)
{
    struct statfs where;
    uid_t uid = getuid();
    gid_t gid = getgid();
    if (uid != geteuid() || gid != getegid())
        return 1;
    int other = ((st->st_mode & S_ISUID) && st->st_uid != uid)
        || ((st->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && st->st_gid != gid);
    if (!other && uid != 0)
        other = sys(SYS_fgetxattr, fd, "security.capability", 0, 0) > 0;
    return other && !(sys(SYS_fstatfs, fd, &where) == 0 && (where.f_flags & ST_NOSUID));
}

/* The name of the dynamic loader into text, or "" without one. */
static void loader(int fd, const Elf64_Ehdr *head, char *text, size_t room)
{
    Elf64_Phdr entry;
    *text = 0;
    for (int i = 0; i < head->e_phnum && i < 256; i++) {
        if (sys_pread(fd, &entry, sizeof entry, head->e_phoff + (uint64_t)i * head->e_phentsize) != sizeof entry)
            return;
        if (entry.p_type == PT_INTERP) {
            long n = sys_pread(fd, text, entry.p_filesz < room - 1 ? entry.p_filesz : room - 1, entry.p_offset);
            text[n > 0 ? n : 0] = 0;
            return;
        }
    }
}

/* Whether the first library that a program needs is a sanitizer's (gcc puts it there): it takes memory and threads for its
 * own, and ends the program where another library comes before it. */
static int sanitized(int fd, const Elf64_Ehdr *head)
{
    Elf64_Phdr entry[16];
    Elf64_Dyn dynamic[64];
    char name[16] = "";
    uint64_t needed = 0, strings = 0, at = 0;
    long count = sys_pread(fd, (char *)entry, sizeof entry, head->e_phoff) / (long)sizeof *entry, n = 0;
    for (long i = 0; i < count && i < head->e_phnum && head->e_phentsize == sizeof *entry; i++)
        if (entry[i].p_type == PT_DYNAMIC)
            n = sys_pread(fd, (char *)dynamic, sizeof dynamic, entry[i].p_offset) / (long)sizeof *dynamic;
    for (long i = n - 1; i >= 0; i--) {
        if (dynamic[i].d_tag == DT_NEEDED)
            needed = dynamic[i].d_un.d_val;
        if (dynamic[i].d_tag == DT_STRTAB)
            strings = dynamic[i].d_un.d_ptr;
    }
    for (long i = 0; i < count && i < head->e_phnum && needed && strings; i++)
        if (entry[i].p_type == PT_LOAD && strings >= entry[i].p_vaddr && strings - entry[i].p_vaddr < entry[i].p_filesz)
            at = strings - entry[i].p_vaddr + entry[i].p_offset + needed;
    if (!at || sys_pread(fd, name, sizeof name - 1, (off_t)at) < 0)
        return 0;
    return strncmp(name, "libasan.so", 10) == 0 || strncmp(name, "libtsan.so", 10) == 0 || strncmp(name, "libhwasan.so", 12) == 0;
}

static const char *why_not_elf(int fd, const char *head, const struct stat *st)
{
    char name[256];
    const Elf64_Ehdr *e = (const Elf64_Ehdr *)head;
    if (e->e_ident[EI_CLASS] != ELFCLASS64)
        return MM_STRIP "it is a 32-bit program";
    if (e->e_machine != MACHINE)
        return MM_STRIP "it is for another kind of processor";
    loader(fd, e, name, sizeof name);
    if (!*name)
        return "it is static: there is no dynamic loader to preload anything";
    if (strstr(name, "ld-musl") || strstr(name, "linker64"))
        return MM_STRIP "its C library is not the GNU one";
    if (sanitized(fd, e))
        return MM_STRIP "it is built with AddressSanitizer or ThreadSanitizer, which must be the first library";
    if (secure(st, fd))
        return "it gets other rights (set-user-ID, set-group-ID or capabilities): the loader ignores the preload library";
    return NULL;
}

/* Has the program a note of the Go linker?  Such a one calls the kernel by itself, also where our library is loaded. */
int mm_calls_by_itself(int fd)
{
    Elf64_Ehdr e;
    Elf64_Phdr entry[16];
    char notes[512];
    if (sys_pread(fd, (char *)&e, sizeof e, 0) != sizeof e || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0
        || e.e_phentsize != sizeof *entry)
        return 0;
    long count = sys_pread(fd, (char *)entry, sizeof entry, e.e_phoff) / (long)sizeof *entry;
    for (long i = 0; i < count && i < e.e_phnum; i++) {
        if (entry[i].p_type != PT_NOTE)
            continue;
        long n = sys_pread(fd, notes, entry[i].p_filesz < sizeof notes ? entry[i].p_filesz : sizeof notes, entry[i].p_offset);
        for (long at = 0; at >= 0 && at + 16 <= n;) {
            Elf64_Nhdr note;
            memcpy(&note, notes + at, sizeof note);
            if (note.n_namesz == 4 && memcmp(notes + at + 12, "Go\0", 4) == 0)
                return 1;
            at += 12 + (long)((note.n_namesz + 3ul) & ~3ul) + (long)((note.n_descsz + 3ul) & ~3ul);
        }
    }
    return 0;
}

/* Why the program behind a descriptor will not be followed, NULL when it will be (or cannot be executed at all). */
const char *mm_why_not(int fd, int depth)
{
    char head[256];
    struct stat st;
    long n = sys_pread(fd, head, sizeof head - 1, 0);
    if (n < 0 || sys(SYS_fstat, fd, &st) < 0 || !S_ISREG(st.st_mode))
        return NULL;
    head[n] = 0;
    if (n >= (long)sizeof(Elf64_Ehdr) && memcmp(head, ELFMAG, SELFMAG) == 0)
        return why_not_elf(fd, head, &st);
    if (head[0] != '#' || head[1] != '!' || depth == SCRIPTS)
        return NULL;
    char *name = head + 2 + strspn(head + 2, " \t");
    name[strcspn(name, " \t\n")] = 0;
    long interpreter = mm_open_spare(AT_FDCWD, *name ? name : "/bin/sh", O_RDONLY, 0);
    if (interpreter < 0)
        return NULL;
    const char *why = mm_why_not((int)interpreter, depth + 1);
    mm_close_spare((int)interpreter);
    return why;
}
