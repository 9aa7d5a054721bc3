/* The driver's operations on descriptors. */
#include "driver.h"
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#define OP(name) static void op_##name(int count, char **word)
#define UNUSED (void)count, (void)word
#define FD (int)number(word[1])

static mode_t mode_of(int count, char **word, int at) { return count > at ? strtol(word[at], NULL, 8) : 0644; }

OP(open) { reply_number(open(word[1], open_flags(word[2]), mode_of(count, word, 3))); }
OP(openat) { reply_number(openat(AT_FDCWD, word[1], open_flags(word[2]), mode_of(count, word, 3))); }
OP(openin) /* directory, name, flags: relative to a directory descriptor */
{
    int directory = open(word[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = openat(directory, word[2], open_flags(word[3]), mode_of(count, word, 4));
    int why = errno;
    if (fd >= 0 && directory < fd) { /* answer with the number a plain open would have given */
        dup2(fd, directory);
        close(fd);
        fd = directory;
    } else if (directory >= 0)
        close(directory);
    errno = why;
    reply_number(fd);
}
OP(creat) { reply_number(creat(word[1], mode_of(count, word, 2))); }
OP(close) { UNUSED; reply_number(close(FD)); }
OP(dup) { UNUSED; reply_number(dup(FD)); }
OP(dup2) { UNUSED; reply_number(dup2(FD, (int)number(word[2]))); }
OP(dup3) { reply_number(dup3(FD, (int)number(word[2]), count > 3 ? ~0 : O_CLOEXEC)); }
OP(dupfd) { UNUSED; reply_number(fcntl(FD, F_DUPFD, (int)number(word[2]))); }
OP(getfl) { UNUSED; reply_number(fcntl(FD, F_GETFL) & (O_ACCMODE | O_APPEND)); }
OP(getfd) { UNUSED; reply_number(fcntl(FD, F_GETFD)); }
OP(openfrom) /* directory descriptor, name, flags */
{
    reply_number(openat(FD, word[2], open_flags(word[3]), mode_of(count, word, 4)));
}
OP(setappend)
{
    UNUSED;
    int flags = fcntl(FD, F_GETFL);
    reply_number(flags < 0 ? -1 : fcntl(FD, F_SETFL, number(word[2]) ? flags | O_APPEND : flags & ~O_APPEND));
}

OP(read) { UNUSED; reply_bytes(read(FD, data, size_of(word[2])), data); }
OP(pread) { UNUSED; reply_bytes(pread(FD, data, size_of(word[2]), number(word[3])), data); }
OP(write)
{
    UNUSED;
    make_bytes(number(word[3]), size_of(word[2]), data);
    reply_number(write(FD, data, size_of(word[2])));
}
OP(pwrite)
{
    UNUSED;
    make_bytes(number(word[4]), size_of(word[2]), data);
    reply_number(pwrite(FD, data, size_of(word[2]), number(word[3])));
}

OP(pwritesync) /* durable when it answers */
{
    UNUSED;
    make_bytes(number(word[4]), size_of(word[2]), data);
    reply_number(pwritev2(FD, &(struct iovec){data, size_of(word[2])}, 1, number(word[3]), RWF_DSYNC));
}

static int thirds(size_t length, struct iovec part[3])
{
    size_t first = length / 5, second = length / 3;
    part[0] = (struct iovec){data, first};
    part[1] = (struct iovec){data + first, second};
    part[2] = (struct iovec){data + first + second, length - first - second};
    return 3;
}
OP(readv) { UNUSED; struct iovec p[3]; reply_bytes(readv(FD, p, thirds(size_of(word[2]), p)), data); }
OP(preadv)
{
    UNUSED;
    struct iovec p[3];
    reply_bytes(preadv(FD, p, thirds(size_of(word[2]), p), number(word[3])), data);
}
OP(writev)
{
    UNUSED;
    struct iovec p[3];
    make_bytes(number(word[3]), size_of(word[2]), data);
    reply_number(writev(FD, p, thirds(size_of(word[2]), p)));
}
OP(pwritev)
{
    UNUSED;
    struct iovec p[3];
    make_bytes(number(word[4]), size_of(word[2]), data);
    reply_number(pwritev(FD, p, thirds(size_of(word[2]), p), number(word[3])));
}

OP(lseek)
{
    UNUSED;
    static const struct { const char *name; int whence; } known[] = {
        {"set", SEEK_SET}, {"cur", SEEK_CUR}, {"end", SEEK_END}, {"data", SEEK_DATA}, {"hole", SEEK_HOLE}};
    int whence = 99;
    for (int i = 0; i < 5; i++)
        if (!strcmp(word[3], known[i].name))
            whence = known[i].whence;
    reply_number(lseek(FD, number(word[2]), whence));
}
OP(ftruncate) { UNUSED; reply_number(ftruncate(FD, number(word[2]))); }
OP(fallocate) { UNUSED; reply_number(posix_fallocate(FD, number(word[2]), number(word[3]))); }
OP(fsync) { UNUSED; reply_number(fsync(FD)); }
OP(hole) { UNUSED; reply_number(fallocate(FD, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, number(word[2]), number(word[3]))); }
OP(linkfd)
{
    UNUSED;
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", FD);
    reply_number(linkat(AT_FDCWD, path, AT_FDCWD, word[2], AT_SYMLINK_FOLLOW));
}
OP(fdatasync) { UNUSED; reply_number(fdatasync(FD)); }
OP(fchmod) { UNUSED; reply_number(fchmod(FD, strtol(word[2], NULL, 8))); }
OP(fsize)
{
    UNUSED;
    struct stat s;
    if (fstat(FD, &s))
        reply_number(-1);
    else
        reply("%lld %o %d", (long long)s.st_size, s.st_mode & 07777, (int)s.st_nlink);
}
OP(sendfile) { UNUSED; reply_number(sendfile((int)number(word[2]), FD, NULL, size_of(word[3]))); }
OP(pipe) /* its two ends */
{
    UNUSED;
    int ends[2];
    if (pipe(ends))
        reply_number(-1);
    else
        reply("%d %d", ends[0], ends[1]);
}
OP(splicein) /* descriptor, pipe, length, offset */
{
    UNUSED;
    loff_t at = number(word[4]);
    reply_number(splice((int)number(word[2]), NULL, FD, &at, size_of(word[3]), 0));
}
OP(copyrange) { UNUSED; reply_number(copy_file_range(FD, NULL, (int)number(word[2]), NULL, size_of(word[3]), 0)); }
OP(mapread) /* descriptor, length: the file's first bytes as a private mapping shows them */
{
    UNUSED;
    size_t length = size_of(word[2]);
    char *map = mmap(NULL, length, PROT_READ, MAP_PRIVATE, FD, 0);
    if (map == MAP_FAILED) {
        reply_number(-1);
        return;
    }
    reply_bytes(length, map);
    munmap(map, length);
}
OP(mapwrite) /* descriptor, length, offset inside the file, seed: through a shared mapping of the whole file */
{
    UNUSED;
    struct stat s;
    long long offset = number(word[3]), length = number(word[2]);
    if (fstat(FD, &s) || offset + length > s.st_size) {
        reply_number(-1);
        return;
    }
    char *map = mmap(NULL, s.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, FD, 0);
    if (map == MAP_FAILED) {
        reply_number(-1);
        return;
    }
    make_bytes(number(word[4]), length, map + offset);
    reply_number(munmap(map, s.st_size));
}
OP(fill) /* path, flags, length, seed: opened, written, closed; answers as write does */
{
    UNUSED;
    int fd = open(word[1], open_flags(word[2]) | O_CLOEXEC, 0644);
    if (fd < 0) {
        reply_number(-1);
        return;
    }
    make_bytes(number(word[4]), size_of(word[3]), data);
    ssize_t wrote = write(fd, data, size_of(word[3]));
    int why = errno;
    close(fd);
    errno = why;
    reply_number(wrote);
}
OP(flock) { UNUSED; reply_number(flock(FD, LOCK_EX | LOCK_NB)); }

const struct entry descriptor_operations[] = {
    {"open", 2, op_open}, {"openat", 2, op_openat}, {"openin", 3, op_openin}, {"creat", 1, op_creat},
    {"close", 1, op_close}, {"dup", 1, op_dup}, {"dup2", 2, op_dup2}, {"dup3", 2, op_dup3}, {"dupfd", 2, op_dupfd},
    {"getfl", 1, op_getfl}, {"getfd", 1, op_getfd}, {"openfrom", 3, op_openfrom}, {"setappend", 2, op_setappend},
    {"read", 2, op_read}, {"pread", 3, op_pread}, {"readv", 2, op_readv}, {"preadv", 3, op_preadv},
    {"write", 3, op_write}, {"pwrite", 4, op_pwrite}, {"writev", 3, op_writev}, {"pwritev", 4, op_pwritev},
    {"lseek", 3, op_lseek}, {"ftruncate", 2, op_ftruncate}, {"fallocate", 3, op_fallocate}, {"hole", 3, op_hole}, {"linkfd", 2, op_linkfd},
    {"fsync", 1, op_fsync}, {"fdatasync", 1, op_fdatasync}, {"fchmod", 2, op_fchmod}, {"fsize", 1, op_fsize},
    {"pwritesync", 4, op_pwritesync}, {"pipe", 0, op_pipe}, {"splicein", 4, op_splicein}, {"sendfile", 3, op_sendfile},
    {"copyrange", 3, op_copyrange}, {"mapread", 2, op_mapread},
    {"mapwrite", 4, op_mapwrite}, {"fill", 4, op_fill}, {"flock", 1, op_flock}, {0, 0, 0}};
