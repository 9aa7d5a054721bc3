/* misc_format.c - files that are neither programs of this machine nor scripts: which program the kernel runs them with, by its table
 * of further formats (Documentation/admin-guide/binfmt-misc.rst).
 *
 * Between fork and exec too: system calls only, no allocation.
 */
#define _GNU_SOURCE
#include "process/program.h"
#include "base/reserve_fds.h"
#include "base/sys.h"

#include <dirent.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>

#define TABLE "/proc/sys/fs/binfmt_misc"
#define ENTRY_ROOM 2048                /* the kernel takes no longer ones; it shows 128 bytes of magic and mask as digits */

static const char *value_of(const char *entry, const char *field)
{
    const char *at = strstr(entry, field);
    return at ? at + strlen(field) : NULL;
}

static int hex_byte(const char *digits)
{
    int byte = 0;
    for (int i = 0; i < 2; i++) {
        char c = digits[i];
        if (!c || !strchr("0123456789abcdef", c))
            return -1;
        byte = byte * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return byte;
}

static int has_magic(const char *entry, const char *magic, const char *head)
{
    const char *mask = value_of(entry, "\nmask "), *offset = value_of(entry, "\noffset ");
    long at = offset ? strtol(offset, NULL, 10) : 0;
    int byte, under = 0xff;
    for (; (byte = hex_byte(magic)) >= 0; magic += 2, at++) {
        if (at < 0 || at >= MM_PROGRAM_HEAD || (mask && (under = hex_byte(mask)) < 0) || ((head[at] ^ byte) & under))
            return 0;
        mask = mask ? mask + 2 : NULL;
    }
    return 1;
}

/* Of the file's name, which is most often the one that it is executed by. */
static int has_extension(const char *extension, int fd)
{
    char link[40], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n = sys_readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    const char *end = strrchr(path, '.');
    size_t length = strcspn(extension, "\n");
    return end && strlen(end + 1) == length && memcmp(end + 1, extension, length) == 0;
}

/* Does this entry's program run the file that begins with these bytes?  Its name is then there; 2: with the rights that the file gives. */
static int entry_runs(int table, const char *name, int fd, const char *head, char *program, size_t room)
{
    char entry[ENTRY_ROOM];
    long file = mm_open_spare(table, name, O_RDONLY, 0), bytes = file < 0 ? file : sys_pread((int)file, entry, sizeof entry - 1, 0);
    if (file >= 0)
        mm_close_spare((int)file);
    entry[bytes > 0 ? bytes : 0] = 0;
    const char *with = value_of(entry, "enabled\ninterpreter "), *magic = value_of(entry, "\nmagic ");
    const char *extension = value_of(entry, "\nextension .");
    size_t length = with ? strcspn(with, "\n") : room;
    if (with != entry + strlen("enabled\ninterpreter ") || length >= room
        || !(magic ? has_magic(entry, magic, head) : extension && has_extension(extension, fd)))
        return 0;
    memcpy(program, with, length);
    program[length] = 0;
    const char *flags = value_of(with + length, "\nflags: ");
    return flags && memchr(flags, 'C', strcspn(flags, "\n")) ? 2 : 1;
}

/* systemd may mount it for whoever goes into it first; before that it has no entries. */
static int is_mounted(void)
{
    struct statfs where;
    long table = mm_open_spare(AT_FDCWD, TABLE, O_PATH, 0);
    int mounted = table >= 0 && sys(SYS_fstatfs, table, &where) == 0 && where.f_type == BINFMTFS_MAGIC;
    if (table >= 0)
        mm_close_spare((int)table);
    return mounted;
}

int mm_misc_program(int fd, const char *head, char *program, size_t room)
{
    char list[1024] __attribute__((aligned(8)));
    int found = 0;
    long table = is_mounted() ? mm_open_spare(AT_FDCWD, TABLE, O_RDONLY | O_DIRECTORY, 0) : -1;
    if (table < 0)
        return 0;
    for (long got; !found && (got = sys(SYS_getdents64, table, list, sizeof list)) > 0;)
        for (long at = 0; !found && at < got; at += ((struct dirent64 *)(list + at))->d_reclen) {
            const struct dirent64 *one = (struct dirent64 *)(list + at);
            if (one->d_name[0] != '.' && strcmp(one->d_name, "register") != 0)
                found = entry_runs((int)table, one->d_name, fd, head, program, room);
        }
    mm_close_spare((int)table);
    return found;
}
