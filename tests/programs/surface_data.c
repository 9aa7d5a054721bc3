/* The random program's calls on bytes. */
#include "surface.h"
#include <linux/fs.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <limits.h>

#define ACT(name) static void act_##name(void)

static int flags(void)
{
    static const int access[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR};
    static const int extra[] = {O_TRUNC, O_APPEND, O_EXCL, O_SYNC, O_DSYNC, O_NOFOLLOW, O_DIRECTORY, O_PATH, O_CLOEXEC,
                                O_NOATIME};
    int f = access[draw(5)] | O_NONBLOCK | (chance(60) ? O_CREAT : 0);
    for (int i = 0; i < 10; i++)
        if (chance(i < 2 ? 15 : i == 9 ? 1 : 5))
            f |= extra[i];
    return f;
}
static const int modes[] = {0644, 0600, 0640, 0755, 04755, 0444};

ACT(open)
{
    const char *p = path();
    int f = flags();
    say(" %s %o", p && p != bad ? p : "-", f);
    int fd = open(p, f, modes[draw(6)]);
    told("", fd);
    put(fd);
}
ACT(openat)
{
    int fd = openat(folder(), path(), flags(), modes[draw(6)]);
    told("", fd);
    put(fd);
}
ACT(creat)
{
    const char *p = file();
    int mode = modes[draw(6)];
    struct stat s;
    if (stat(p, &s) == 0 && S_ISFIFO(s.st_mode))
        return;                              /* it would wait for a reader */
    int fd = creat(p, mode);
    told("", fd);
    put(fd);
}
ACT(tmp)
{
    int fd = openat(folder(), chance(50) ? "d0" : plain(), O_TMPFILE | (chance(80) ? O_RDWR : O_RDONLY)
                    | (chance(20) ? O_EXCL : 0), 0640);
    told("", fd);
    if (fd >= 0) {
        told("write", write(fd, fill(5000), 5000));
        char name[40];
        sprintf(name, "/proc/self/fd/%d", fd);
        if (chance(70))
            told("linkat", chance(50) ? linkat(AT_FDCWD, name, folder(), plain(), AT_SYMLINK_FOLLOW)
                                      : linkat(fd, "", folder(), plain(), AT_EMPTY_PATH));
    }
    put(fd);
}
ACT(mkstemp)
{
    char name[] = "d0/mXXXXXX.end", none[] = "d0/mXXXXX";
    int fd = chance(80) ? mkostemps(name, 4, chance(50) ? O_APPEND : 0) : mkstemp(none);
    told("", fd);
    if (fd >= 0) {
        told("write", write(fd, fill(3000), 3000));
        const char *to = plain();
        told("rename", rename(name, to));
        told("unlink", unlink(name));
    }
    put(fd);
}
ACT(close)
{
    int i = draw(SLOTS);
    told("", close(slot[i]));
    slot[i] = -1;
}
ACT(dup)
{
    int fd = draw(2) ? dup(some()) : fcntl(some(), draw(2) ? F_DUPFD : F_DUPFD_CLOEXEC, (int)draw(50));
    told("", fd);
    put(fd);
}
ACT(dup2)
{
    int from = some(), i = draw(SLOTS);
    if (slot[i] >= 0)
        told("", chance(50) ? dup2(from, slot[i]) : dup3(from, slot[i], chance(50) ? O_CLOEXEC : 0));
}
ACT(setfl)
{
    int fd = some(), f = fcntl(fd, F_GETFL);
    told("get", f < 0 ? f : f & (O_ACCMODE | O_APPEND | O_SYNC | O_DSYNC | O_NONBLOCK));
    int other = chance(50) ? f ^ O_APPEND : f ^ O_NONBLOCK;
    struct stat s;                      /* a fifo that blocks would wait for ever */
    told("set", fcntl(fd, F_SETFL, fstat(fd, &s) == 0 && S_ISFIFO(s.st_mode) ? other | O_NONBLOCK : other));
}

/* ext4 and tmpfs answer alike where others have ways of their own: how much of a write from partly bad memory is done, what
 * SEEK_DATA says of negative places, which of the blocks' sharing calls are refused and why. */
static int usual(void)
{
    static int known;
    struct statfs s;
    if (!known)
        known = statfs(".", &s) == 0 && (s.f_type == EXT4_SUPER_MAGIC || s.f_type == TMPFS_MAGIC) ? 1 : 2;
    return known == 1;
}

/* Memory for a transfer: mostly good, sometimes ending too early, sometimes none at all. */
static char *memory(size_t n, int percent)
{
    if (!chance(percent))
        return room;
    switch (draw(5)) {
    case 0: return NULL;
    case 1: return bad;
    case 2: return (char *)-4096;
    default:
        if (!usual())
            return bad;
        memset(bad - 4096, 'z', 4096);
        return bad - (n ? draw(n < 4096 ? n : 4096) : 0);
    }
}
static size_t many(size_t n) { return chance(2) ? (draw(2) ? SIZE_MAX : (size_t)SSIZE_MAX) - draw(2) * 4096 : n; }

static struct iovec vector[1100];
static int vectors(int writes)
{
    int n = chance(3) ? (int[]){0, -1, 1024, 1025}[draw(4)] : 1 + (int)draw(5);
    size_t at = 0;
    for (int i = 0; i < n && i < 1100; i++) {
        size_t l = n > 5 ? draw(20) : chance(20) ? 0 : draw(9000);
        vector[i] = (struct iovec){at && usual() && chance(4) ? memory(l, 100) : room + at, chance(1) ? SIZE_MAX - draw(9) : l};
        at += l;
    }
    if (writes)
        fill(ROOM);
    else
        memset(room, 0, ROOM / 2);
    return n;
}
static const struct iovec *where(void) { return chance(2) ? (struct iovec *)bad : vector; }
static int rw_flags(int writes)
{
    static const int known[] = {RWF_APPEND, RWF_DSYNC, RWF_SYNC, RWF_NOWAIT, RWF_HIPRI, 0x20, 1 << 30, 0x40};
    (void)writes;
    int f = chance(50) ? 0 : known[draw(8)];
    return f == RWF_NOWAIT && !usual() ? 0 : f;    /* XFS and btrfs say EAGAIN as their caches are at that moment */
}

ACT(read) { size_t n = length(); char *m = memory(n, 5); told_bytes("", read(some(), m, many(n)), m); }
ACT(write)
{
    size_t n = length();
    fill(n);
    char *m = memory(n, 5);
    int fd = some();
    if (m != room)                           /* ext4 makes a file longer when a write past its end fails with EFAULT */
        lseek(fd, 0, SEEK_SET);
    told("", write(fd, m, many(n)));
}
ACT(pread) { size_t n = length(); char *m = memory(n, 5); told_bytes("", pread(some(), m, many(n), place()), m); }
ACT(pwrite)
{
    size_t n = length();
    fill(n);
    char *m = memory(n, 5);
    int fd = some();
    off_t at = place();
    told("", pwrite(fd, m, many(n), m == room || at < 0 ? at : 0));
}
ACT(readv) { int n = vectors(0); told("", readv(some(), where(), n)); say("/%08x", crc(room, 60000)); }
ACT(writev) { int n = vectors(1); told("", writev(some(), where(), n)); }
ACT(preadv)
{
    int n = vectors(0);
    told("", preadv2(some(), where(), n, chance(20) ? -1 : place(), chance(50) ? 0 : rw_flags(0)));
    say("/%08x", crc(room, 60000));
}
ACT(pwritev)
{
    int n = vectors(1), f = rw_flags(1);
    say(" %x", f);
    told("", pwritev2(some(), where(), n, chance(20) ? -1 : place(), f));
}
ACT(lseek)
{
    int fd = some(), whence = draw(4) ? (int)draw(3) : (int)draw(8);
    off_t at = chance(30) ? -(off_t)draw(30000) : place();
    off_t size = lseek(fd, 0, SEEK_CUR) < 0 ? -1 : 0, r;
    if (at < 0 && !usual())
        at = -at;
    if (whence == SEEK_DATA || whence == SEEK_HOLE) {      /* the answer may be coarser than the file system's */
        struct stat s;
        fstat(fd, &s);
        r = size < 0 ? size : lseek(fd, at, whence);
        if (r < 0 && errno == ENXIO && at >= 0 && at < s.st_size)
            r = s.st_size;              /* no data from there on: then only zeros may follow */
        if (r >= 0 && S_ISREG(s.st_mode)) {
            int ok = r >= at && r <= s.st_size, reader = -1;
            char name[40];
            sprintf(name, "/proc/self/fd/%d", fd);
            if (s.st_size < 1 << 20 && (reader = open(name, O_RDONLY)) >= 0)
                for (off_t i = at; ok && whence == SEEK_DATA && i < r && pread(reader, room, 1, i) == 1; i++)
                    ok = room[0] == 0;
            if (reader >= 0 && ok && whence == SEEK_HOLE && r < s.st_size)
                ok = pread(reader, room, 1, r) == 1 && room[0] == 0;
            close(reader);
            told("right", ok);
            lseek(fd, at, SEEK_SET);
        } else {
            told("", r);
        }
        return;
    }
    told("", lseek(fd, at, whence));
}
ACT(ftruncate) { told("", ftruncate(some(), place())); }
ACT(truncate) { told("", truncate(path(), place())); }
static void dated(int fd)
{
    int saved = errno;
    futimens(fd, NULL);
    errno = saved;
}
ACT(fallocate)
{
    static const int known[] = {0, 1, 2, 3, 0x10, 0x11, 8, 0x20, 0x40, 0x41, 9, 0x80, 0x100, 4};
    int mode = known[draw(14)];
    off_t at = chance(60) ? 4096 * (off_t)draw(10) : place(), n = chance(60) ? 4096 * (off_t)draw(6) : (off_t)length();
    say(" %x %lld %lld", mode, (long long)at, (long long)n);
    int fd = some(), r = fallocate(fd, mode, at, n);
    told("", r);
    struct stat s;
    if (r < 0)                          /* some filesystems date a file before they refuse */
        dated(fd);
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode))
        told("size", s.st_size);
}
ACT(posix_fallocate)
{
    int fd = some(), e = posix_fallocate(fd, chance(90) ? draw(40000) : place(), length());
    told("", e);
    if (e)
        dated(fd);
}

ACT(copy_file_range)
{
    off_t a = place(), b = place();
    int from = some(), to = some(), own = draw(2), other = draw(2);
    told("", copy_file_range(from, own ? &a : NULL, to, other ? &b : NULL, chance(2) ? SIZE_MAX : length(),
                             chance(5) ? 1 : 0));
    say(" %lld %lld", (long long)a, (long long)b);
    told("at", lseek(from, 0, SEEK_CUR));
    told("at", lseek(to, 0, SEEK_CUR));
}
ACT(sendfile)
{
    off_t a = place();
    int own = draw(2), from = some(), to = some();
    struct stat one, other;
    if (fstat(from, &one) == 0 && fstat(to, &other) == 0 && S_ISREG(one.st_mode) && one.st_ino == other.st_ino)
        return;                              /* pages on their way are overwritten meanwhile */
    told("", sendfile(to, from, own ? &a : NULL, length()));
    say(" %lld", (long long)a);
    told("at", lseek(from, 0, SEEK_CUR));
    told("at", lseek(to, 0, SEEK_CUR));
}
static int through(int ends[2])
{
    return pipe2(ends, O_NONBLOCK) == 0;
}
ACT(splice_out)
{
    int ends[2], fd = some();
    if (!through(ends))
        return;
    off_t a = place();
    int own = draw(2);
    size_t n = length();
    ssize_t r = splice(fd, own ? &a : NULL, ends[1], NULL, n, chance(20) ? SPLICE_F_MOVE : 0);
    told("", r);
    ssize_t got = 0, more;
    while ((more = read(ends[0], room + got, ROOM - got)) > 0)
        got += more;
    told_bytes("piped", got, room);
    say(" %lld", (long long)a);
    told("at", lseek(fd, 0, SEEK_CUR));
    close(ends[0]), close(ends[1]);
}
ACT(splice_in)
{
    int ends[2], other[2], fd = some();
    if (!through(ends) || !through(other))
        return;
    size_t n = 1 + draw(30000);
    fill(n);
    told("vmsplice", vmsplice(ends[1], &(struct iovec){room, n}, 1, SPLICE_F_NONBLOCK));
    told("tee", tee(ends[0], other[1], n, SPLICE_F_NONBLOCK));
    off_t a = place();
    int own = draw(2);
    told("", splice(ends[0], NULL, fd, own ? &a : NULL, n + 100, SPLICE_F_NONBLOCK));
    told("again", splice(other[0], NULL, fd, NULL, n / 2 + 1, SPLICE_F_NONBLOCK));
    say(" %lld", (long long)a);
    told("at", lseek(fd, 0, SEEK_CUR));
    told("left", read(ends[0], room, 60000));
    close(ends[0]), close(ends[1]), close(other[0]), close(other[1]);
}
ACT(sync)
{
    int fd = some();
    switch (draw(7)) {
    case 0: told("fsync", fsync(fd)); break;
    case 1: told("fdatasync", fdatasync(fd)); break;
    case 2: told("range", sync_file_range(fd, place(), length(), draw(9))); break;
    case 3: told("advise", posix_fadvise(fd, place(), length(), draw(8))); break;
    case 4: told("ahead", readahead(fd, place(), length())); break;
    case 5: told("fs", syncfs(fd)); break;
    default: told("fsync", fsync(fd));
    }
}
ACT(ioctl)
{
    int fd = some(), value = 0, from = some();
    struct file_clone_range range = {from, 4096 * draw(4), 4096 * draw(4), 4096 * draw(4)};
    int what = draw(6);
    if (!usual() && (what < 2 || what > 4))
        return;
    switch (what) {
    case 0: told("clone", ioctl(fd, FICLONE, from)); break;
    case 1: told("range", ioctl(fd, FICLONERANGE, &range)); break;
    case 2: told("left", ioctl(fd, FIONREAD, &value)); say(" %d", value); break;
    case 3: told("flags", ioctl(fd, FS_IOC_GETFLAGS, &value)); say(" %x", value & ~FS_EXTENT_FL); break;
    case 4: {
        char m[sizeof(struct fiemap) + 8 * sizeof(struct fiemap_extent)] = {0};
        struct fiemap *map = (struct fiemap *)m;
        map->fm_length = FIEMAP_MAX_OFFSET, map->fm_extent_count = 8, map->fm_flags = FIEMAP_FLAG_SYNC;
        told("fiemap", ioctl(fd, FS_IOC_FIEMAP, map));
        break;
    }
    default: {
        char m[sizeof(struct file_dedupe_range) + sizeof(struct file_dedupe_range_info)] = {0};
        struct file_dedupe_range *d = (struct file_dedupe_range *)m;
        d->src_length = 4096, d->dest_count = 1, d->info[0].dest_fd = from;
        told("dedupe", ioctl(fd, FIDEDUPERANGE, d));
        say(" %d", d->info[0].status);
    }
    }
}
ACT(lock)
{
    int fd = some();
    struct flock l = {.l_type = (short)draw(3), .l_whence = SEEK_SET, .l_start = draw(1000), .l_len = draw(1000)};
    switch (draw(4)) {
    case 0: told("flock", flock(fd, (int[]){LOCK_SH, LOCK_EX, LOCK_UN}[draw(3)] | LOCK_NB)); break;
    case 1: told("setlk", fcntl(fd, F_SETLK, &l)); break;
    case 2: told("ofd", fcntl(fd, F_OFD_SETLK, &l)); break;
    default: told("lockf", lockf(fd, draw(2) ? F_TLOCK : F_ULOCK, draw(5000)));
    }
}
ACT(map)
{
    int fd = some();
    struct stat s;
    if (fstat(fd, &s) || !S_ISREG(s.st_mode) || !s.st_size || s.st_size > ROOM)
        return;
    char *m = mmap(NULL, s.st_size, PROT_READ, draw(2) ? MAP_PRIVATE : MAP_SHARED, fd, 0);
    told("", m == MAP_FAILED ? -1 : 0);
    if (m != MAP_FAILED) {
        say("/%08x", crc(m, s.st_size));
        munmap(m, s.st_size);
    }
}
ACT(limit)                              /* a file size limit around one write */
{
    struct rlimit old, small = {draw(40000), RLIM_INFINITY};
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    int fd = some(), r;
    size_t n = length();
    fill(n);
    switch (draw(4)) {
    case 0: told("write", write(fd, room, n)); break;
    case 1: told("pwrite", pwrite(fd, room, n, draw(60000))); break;
    case 2: told("ftruncate", ftruncate(fd, draw(60000))); break;
    default:
        told("fallocate", r = fallocate(fd, draw(2), draw(30000), 1 + n));
        if (r < 0)
            dated(fd);
    }
    int saved = errno;
    setrlimit(RLIMIT_FSIZE, &old);
    errno = saved;
}
ACT(fewer)                              /* no descriptor to be had */
{
    struct rlimit old, small = {3, 0};
    getrlimit(RLIMIT_NOFILE, &old);
    small.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_NOFILE, &small);
    const char *p = file();
    int fd = chance(50) ? open(p, O_RDWR | O_CREAT | O_NONBLOCK, 0644) : open(p, O_WRONLY | O_TRUNC | O_NONBLOCK);
    told("open", fd);
    FILE *f = fopen(p, "r");
    told("fopen", f ? 0 : -1);
    told("dup", dup(1));
    told("truncate", truncate(p, draw(5000)));
    setrlimit(RLIMIT_NOFILE, &old);
}

const struct act data_acts[] = {
    {"open", 60, act_open}, {"openat", 15, act_openat}, {"creat", 3, act_creat}, {"tmp", 4, act_tmp},
    {"mkstemp", 4, act_mkstemp}, {"close", 15, act_close}, {"dup", 8, act_dup}, {"dup2", 4, act_dup2},
    {"setfl", 4, act_setfl}, {"read", 30, act_read}, {"write", 40, act_write}, {"pread", 25, act_pread},
    {"pwrite", 40, act_pwrite}, {"readv", 10, act_readv}, {"writev", 15, act_writev}, {"preadv", 15, act_preadv},
    {"pwritev", 20, act_pwritev}, {"lseek", 30, act_lseek}, {"ftruncate", 15, act_ftruncate},
    {"truncate", 8, act_truncate}, {"fallocate", 20, act_fallocate}, {"posix_fallocate", 5, act_posix_fallocate},
    {"copy_file_range", 15, act_copy_file_range}, {"sendfile", 12, act_sendfile}, {"splice_out", 12, act_splice_out},
    {"splice_in", 12, act_splice_in}, {"sync", 10, act_sync}, {"ioctl", 8, act_ioctl}, {"lock", 8, act_lock},
    {"map", 8, act_map}, {"limit", 8, act_limit}, {"fewer", 3, act_fewer}, {0, 0, 0}};
