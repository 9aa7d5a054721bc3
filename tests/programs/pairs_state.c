/* pairs_state.c - what stands in a world, in one line; and what does not stand there and yet decides what comes later. */
#define _GNU_SOURCE
#include "pairs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

struct entry {
    char path[512];
    struct stat st;
};
static struct entry entries[256];
static int entry_count;

static int by_path(const void *one, const void *other)
{
    return strcmp(((const struct entry *)one)->path, ((const struct entry *)other)->path);
}

static void collect(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (const struct dirent *d; (d = readdir(dir));) {
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
            continue;
        struct entry *e = &entries[entry_count++];
        if (snprintf(e->path, sizeof e->path, "%s/%s", folder, d->d_name) >= (int)sizeof e->path)
            abort();
        if (lstat(e->path, &e->st) < 0)
            abort();
        if (S_ISDIR(e->st.st_mode))
            collect(strcpy((char[sizeof e->path]){ 0 }, e->path));
    }
    closedir(dir);
}

uint32_t summed(uint32_t sum, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ ((const unsigned char *)bytes)[i]) * 16777619u;
    return sum;
}

/* Who wrote the 8 bytes at this place, in which phase; zeros: "0"; else what stood there at first: "". */
static void writer_of(const unsigned char *bytes, char *out)
{
    static const unsigned char zeros[8];
    int is_mark = bytes[0] >= 'A' && bytes[0] <= 'B';
    for (int i = 1; i < 4; i++)
        is_mark = is_mark && bytes[i] >= '0' && bytes[i] <= '9';
    snprintf(out, 5, "%.4s", is_mark ? (const char *)bytes : memcmp(bytes, zeros, 8) ? "" : "0");
}

/* The sum of a file's bytes, and where they are whose. */
static size_t describe(const char *path, char *out, size_t room)
{
    unsigned char bytes[8];
    char last[5] = "", writer[5];
    uint32_t sum = 2166136261u;
    size_t n = 0;
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return 0;
    FILE *file = fdopen(fd, "r");
    out[0] = 0;
    for (size_t at = 0, got; (got = fread(bytes, 1, sizeof bytes, file)) > 0; at += got) {
        sum = summed(sum, bytes, got);
        memset(bytes + got, 1, sizeof bytes - got);
        writer_of(bytes, writer);
        if (strcmp(writer, last) != 0)
            n += snprintf(out + n, room - n, ",%zu=%s", at, writer);
        strcpy(last, writer);
    }
    fclose(file);
    return n + snprintf(out + n, room - n, ":%08x", sum);
}

/* One line: every name with its kind, mode, owner, size, bytes, links, attribute, and its time where a call set that. */
void state_of(int world, char *out, size_t room)
{
    char folder[40];
    entry_count = 0;
    snprintf(folder, sizeof folder, "w%d", world);
    collect(folder);
    qsort(entries, entry_count, sizeof entries[0], by_path);
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < entry_count; i++) {
        const struct entry *e = &entries[i], *first = e;
        char kind = S_ISREG(e->st.st_mode) ? 'f' : S_ISDIR(e->st.st_mode) ? 'd' : S_ISLNK(e->st.st_mode) ? 'l' : 'o';
        for (int j = i - 1; j >= 0; j--)
            if (entries[j].st.st_ino == e->st.st_ino)
                first = &entries[j];
        n += snprintf(out + n, room - n, " %s:%c", strchr(e->path, '/') + 1, kind);
        if (kind == 'l') {
            char target[100] = "";
            readlink(e->path, target, sizeof target - 1);
            n += snprintf(out + n, room - n, ":%s", target);
            continue;
        }
        n += snprintf(out + n, room - n, ":%o:%u", (unsigned)e->st.st_mode & 07777, (unsigned)e->st.st_gid);
        if (kind != 'f')
            continue;
        char value[32] = "";
        getxattr(e->path, "user.k", value, sizeof value - 1);
        n += snprintf(out + n, room - n, ":%ld", (long)e->st.st_size);
        n += describe(e->path, out + n, room - n);
        n += snprintf(out + n, room - n, ":%s", value);
        if (e->st.st_nlink > 1)
            n += snprintf(out + n, room - n, ":%d=%s", (int)e->st.st_nlink, strchr(first->path, '/') + 1);
        if (e->st.st_mtime < 1500000000)
            n += snprintf(out + n, room - n, "@%ld", (long)e->st.st_mtime);
    }
}

/* Where a descriptor leads, how, and at which position; of a file without a name what it holds, too. */
static uint32_t summed_descriptor(uint32_t sum, int fd)
{
    char link[40], leads[600];
    off_t position = lseek(fd, 0, SEEK_CUR);
    int flags = fcntl(fd, F_GETFL);
    struct stat st;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, leads, sizeof leads);
    if (n < 0 || fstat(fd, &st) < 0)
        return summed(sum, "none", 4);
    sum = summed(summed(summed(sum, leads, (size_t)n), &position, sizeof position), &flags, sizeof flags);
    if (st.st_nlink || !S_ISREG(st.st_mode))
        return sum;
    int file = open(link, O_RDONLY);
    for (ssize_t got; (got = read(file, leads, sizeof leads)) > 0;)
        sum = summed(sum, leads, (size_t)got);
    close(file);
    return summed(summed(sum, &st.st_size, sizeof st.st_size), &st.st_mode, sizeof st.st_mode);
}

uint32_t descriptors_of(const int *fd, int count)
{
    uint32_t sum = 2166136261u;
    for (int i = 0; i < count; i++) {
        sum = summed_descriptor(sum, fd[i]);
        for (int j = 0; j < i; j++) {  /* those that have one position between them */
            char same = fd[i] >= 0 && fd[j] >= 0 && syscall(SYS_kcmp, getpid(), getpid(), 0 /* KCMP_FILE */, fd[i], fd[j]) == 0;
            sum = summed(sum, &same, 1);
        }
    }
    return sum;
}

void clear_world(int world)
{
    char command[40];
    entry_count = 0;
    snprintf(command, sizeof command, "w%d", world);
    collect(command);
    qsort(entries, entry_count, sizeof entries[0], by_path);
    for (int i = entry_count - 1; i >= 0; i--)
        remove(entries[i].path);
    remove(command);
}
