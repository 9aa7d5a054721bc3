/* The driver's operations on names, and the picture of the whole folder. */
#include "driver.h"
#include <dirent.h>
#include <sys/time.h>

#define OP(name) static void op_##name(int count, char **word)
#define UNUSED (void)count, (void)word

OP(unlink) { UNUSED; reply_number(unlink(word[1])); }
OP(unlinkat) { UNUSED; reply_number(unlinkat(AT_FDCWD, word[1], 0)); }
OP(remove) { UNUSED; reply_number(remove(word[1])); }
static void reply_renamed(int r)
{
    if (r < 0 && errno == EEXIST)            /* a folder that is not empty, on xfs: POSIX allows both */
        errno = ENOTEMPTY;
    reply_number(r);
}
OP(rename) { UNUSED; reply_renamed(rename(word[1], word[2])); }
OP(renameat) { UNUSED; reply_renamed(renameat(AT_FDCWD, word[1], AT_FDCWD, word[2])); }
OP(exchange) { UNUSED; reply_renamed(renameat2(AT_FDCWD, word[1], AT_FDCWD, word[2], RENAME_EXCHANGE)); }
OP(link) { UNUSED; reply_number(link(word[1], word[2])); }
OP(symlink) { UNUSED; reply_number(symlink(word[1], word[2])); }
OP(mkdir) { UNUSED; reply_number(mkdir(word[1], 0755)); }
OP(mkfifo) { UNUSED; reply_number(mkfifo(word[1], 0644)); }
OP(rmdir) { UNUSED; reply_number(rmdir(word[1])); }
OP(chmod) { UNUSED; reply_number(chmod(word[1], strtol(word[2], NULL, 8))); }
OP(chdir) { UNUSED; reply_number(chdir(word[1])); }
OP(truncate) { UNUSED; reply_number(truncate(word[1], number(word[2]))); }
OP(exists) { UNUSED; reply_number(access(word[1], F_OK)); }
OP(touch) /* path, seconds: sets both times */
{
    UNUSED;
    struct timeval both[2] = {{number(word[2]), 0}, {number(word[2]), 0}};
    reply_number(utimes(word[1], both));
}
OP(size)
{
    UNUSED;
    struct stat s;
    if (lstat(word[1], &s))
        reply_number(-1);
    else
        reply("%lld %o %d", (long long)s.st_size, s.st_mode & 07777, (int)s.st_nlink);
}
OP(mtime)
{
    UNUSED;
    struct stat s;
    if (stat(word[1], &s))
        reply_number(-1);
    else
        reply("%lld", (long long)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec);
}
OP(readlink)
{
    UNUSED;
    ssize_t length = readlink(word[1], data, 4000);
    if (length < 0)
        reply_number(-1);
    else
        reply("%.*s", (int)length, data);
}

static char picture[1 << 16];
static size_t drawn;

static uint32_t crc_of_file(const char *path)
{
    uint32_t crc = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0xbadbad;
    for (ssize_t got; (got = read(fd, data, 65536)) > 0;)
        crc = crc32_of(data, got, crc);
    close(fd);
    return crc;
}

static void draw(const char *folder)
{
    struct dirent **names;
    int n = scandir(folder, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        char path[4096];
        struct stat s;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (strcmp(name, ".") && strcmp(name, "..") && !lstat(path, &s)) {
            int is_file = S_ISREG(s.st_mode), is_link = S_ISLNK(s.st_mode);
            drawn += snprintf(picture + drawn, sizeof picture - drawn, " %s:%c:%o:%lld:%d:%08x", path + 2,
                              is_file ? 'f' : is_link ? 'l' : S_ISDIR(s.st_mode) ? 'd' : '?', s.st_mode & 07777,
                              is_file ? (long long)s.st_size : 0, is_file ? (int)s.st_nlink : 0,
                              is_file ? crc_of_file(path) : 0);
            if (S_ISDIR(s.st_mode))
                draw(path);
        }
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}
OP(tree) /* every name below the current folder: kind, mode, size, links and CRC-32 of files */
{
    UNUSED;
    drawn = 0;
    picture[0] = 0;
    fflush(NULL);
    draw(".");
    reply("tree%s", picture);
}
OP(hex) /* path, offset, length: for looking at a failure */
{
    UNUSED;
    int fd = open(word[1], O_RDONLY | O_CLOEXEC);
    ssize_t got = pread(fd, data, size_of(word[3]), number(word[2]));
    char text[8192], *out = text;
    for (ssize_t i = 0; i < got && i < 4000; i++)
        out += sprintf(out, "%02x", (unsigned char)data[i]);
    *out = 0;
    if (fd >= 0)
        close(fd);
    reply("%zd %s", got, text);
}

const struct entry name_operations[] = {
    {"unlink", 1, op_unlink}, {"unlinkat", 1, op_unlinkat}, {"remove", 1, op_remove}, {"rename", 2, op_rename},
    {"renameat", 2, op_renameat}, {"exchange", 2, op_exchange}, {"link", 2, op_link}, {"symlink", 2, op_symlink}, {"mkdir", 1, op_mkdir}, {"mkfifo", 1, op_mkfifo},
    {"rmdir", 1, op_rmdir}, {"chmod", 2, op_chmod}, {"chdir", 1, op_chdir}, {"truncate", 2, op_truncate},
    {"exists", 1, op_exists}, {"touch", 2, op_touch}, {"size", 1, op_size}, {"mtime", 1, op_mtime},
    {"readlink", 1, op_readlink}, {"tree", 0, op_tree}, {"hex", 3, op_hex}, {0, 0, 0}};
