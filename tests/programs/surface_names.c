/* The random program's calls on names, attributes and streams. */
#include "surface.h"
#include <glob.h>
#include <ftw.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>
#include <wchar.h>

#define ACT(name) static void act_##name(void)

ACT(unlink)
{
    int how = draw(5);
    const char *p = path();
    told("", how == 0 ? unlink(p) : how == 1 ? unlinkat(folder(), p, 0) : how == 2 ? unlinkat(folder(), p, AT_REMOVEDIR)
           : how == 3 ? remove(p) : unlinkat(folder(), p, 1 << 20));
}
ACT(rmdir) { told("", rmdir(path())); }
ACT(mkdir) { int r = chance(50) ? mkdir(path(), 0755) : mkdirat(folder(), path(), 0700 | draw(512)); told("", r); }
ACT(rename)
{
    const char *from = path(), *to = path();
    int how = draw(6);
    say(" %s %s", from && from != bad ? from : "-", to && to != bad ? to : "-");
    told("", how < 2 ? rename(from, to) : how == 2 ? renameat(folder(), from, folder(), to)
           : renameat2(folder(), from, folder(), to,
                       how == 3 ? RENAME_NOREPLACE : how == 4 ? RENAME_EXCHANGE
                                : (unsigned[]){RENAME_WHITEOUT, 3, 1 << 20, 0, 6}[draw(5)]));
}
ACT(link)
{
    const char *from = path(), *to = path();
    int fd = some();
    told("", chance(40) ? link(from, to)
           : chance(20) ? linkat(fd, "", folder(), to, AT_EMPTY_PATH)
                        : linkat(folder(), from, folder(), to, (int[]){0, AT_SYMLINK_FOLLOW, 1}[draw(3)]));
}
ACT(symlink)
{
    const char *target = chance(20) ? "missing/one" : plain();
    told("", chance(50) ? symlink(target, path()) : symlinkat(target, folder(), path()));
}
ACT(readlink)
{
    ssize_t r = chance(50) ? readlink(path(), room, draw(50)) : readlinkat(folder(), path(), room, 100);
    told("", r < 0 ? r : 0);            /* what it reads may hold the folder's path */
}
ACT(mknod)
{
    const char *p = path();
    int how = draw(5);
    told("", how == 0 ? mkfifo(p, 0640) : how == 1 ? mknod(p, S_IFREG | 0640, 0) : how == 2 ? mknodat(folder(), p, S_IFCHR | 0600, makedev(1, 3))
           : how == 3 ? mknod(p, S_IFSOCK | 0600, 0) : mkfifoat(folder(), p, 0600));
}
ACT(chdir)
{
    const char *p = path();
    int here = open(".", O_RDONLY | O_DIRECTORY);
    told("", chdir(p));
    struct stat s;
    told("f0", stat("f0", &s));
    told("create", mknod("f3", S_IFREG | 0600, 0));
    told("back", fchdir(here));
    close(here);
}
ACT(access)
{
    const char *p = path();
    int mode = draw(8);
    switch (draw(4)) {
    case 0: told("", access(p, mode)); break;
    case 1: told("", faccessat(folder(), p, mode, AT_EACCESS)); break;
    case 2: told("", euidaccess(p, mode)); break;
    default: told("", faccessat(folder(), p, mode, AT_SYMLINK_NOFOLLOW));
    }
}
ACT(stat)
{
    struct stat s;
    struct statx x;
    int fd = some();
    const char *p = path();
    if (p && p != bad && *p == '/')                 /* a link of /proc: its size and mode say nothing */
        return;
    int r;
    switch (draw(4)) {
    case 0: r = stat(p, &s); break;
    case 1: r = fstat(fd, &s); break;
    case 2: r = fstatat(folder(), p, &s, AT_SYMLINK_NOFOLLOW); break;
    default:
        r = chance(50) ? statx(folder(), p, AT_SYMLINK_NOFOLLOW, STATX_ALL, &x) : statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &x);
        told("", r);
        if (r == 0)
            say(" %o %lld x%u", x.stx_mode, S_ISDIR(x.stx_mode) ? 0 : (long long)x.stx_size, S_ISDIR(x.stx_mode) ? 0 : x.stx_nlink);
        return;
    }
    told("", r);
    if (r == 0)
        say(" %o %lld x%d", s.st_mode, S_ISDIR(s.st_mode) ? 0 : (long long)s.st_size, S_ISDIR(s.st_mode) ? 0 : (int)s.st_nlink);
}
ACT(realpath) { char out[8192]; told("", realpath(path(), out) ? (long long)strlen(out) : -1); }
ACT(glob)
{
    glob_t g;
    told("", glob(chance(50) ? "d*/*" : "*", 0, NULL, &g));
    for (size_t i = 0; i < g.gl_pathc; i++)
        say(" %s", g.gl_pathv[i]);
    globfree(&g);
}
static int walked;
static uint32_t sum;
static int walk(const char *p, const struct stat *s, int kind, struct FTW *f)
{
    walked++;
    sum += crc(p, strlen(p)) * (uint32_t)(kind + 1) + f->level + (S_ISREG(s->st_mode) ? (uint32_t)s->st_size : 0);
    return 0;
}
ACT(nftw)
{
    walked = 0, sum = 0;
    told("", nftw(".", walk, 5, FTW_PHYS));
    say(" %d %08x", walked, sum);
}
ACT(statfs_free) { told("", fpathconf(some(), _PC_NAME_MAX)); }

ACT(chmod)
{
    mode_t m = draw(4) ? 0600 | draw(0200) : draw(010000);
    switch (draw(4)) {
    case 0: told("", chmod(path(), m)); break;
    case 1: told("", fchmod(some(), m)); break;
    case 2: told("", fchmodat(folder(), path(), m, 0)); break;
    default: told("", fchmodat(folder(), path(), m, AT_SYMLINK_NOFOLLOW));
    }
}
ACT(chown)
{
    uid_t u = chance(30) ? (uid_t)-1 : geteuid() ? geteuid() : draw(3) * 7;
    gid_t g = chance(30) ? (gid_t)-1 : geteuid() ? getegid() : draw(3) * 9;
    switch (draw(5)) {
    case 0: told("", chown(path(), u, g)); break;
    case 1: told("", lchown(path(), u, g)); break;
    case 2: told("", fchown(some(), u, g)); break;
    case 3: told("", fchownat(some(), "", u, g, AT_EMPTY_PATH)); break;
    default: told("", fchownat(folder(), path(), u, g, AT_SYMLINK_NOFOLLOW));
    }
}
ACT(times)
{
    struct timespec t[2] = {{1000 + draw(1000), draw(1000000000)}, {3000 + draw(1000), draw(1000000000)}};
    struct timeval v[2] = {{1000 + draw(1000), draw(1000000)}, {4000 + draw(1000), draw(1000000)}};
    struct utimbuf u = {5, 6 + draw(100)};
    const char *p = path();
    if (chance(10))
        t[1].tv_nsec = draw(2) ? UTIME_OMIT : 1000000001;
    switch (draw(9)) {
    case 0: told("", utimensat(folder(), p, t, 0)); break;
    case 1: told("", utimensat(folder(), p, t, AT_SYMLINK_NOFOLLOW)); break;
    case 2: told("", futimens(some(), t)); break;
    case 3: told("", utimes(p, v)); break;
    case 4: told("", lutimes(p, v)); break;
    case 5: told("", futimes(some(), v)); break;
    case 6: told("", futimesat(folder(), p, v)); break;
    case 7: told("", utime(p, &u)); break;
    default: told("", utimensat(some(), "", t, AT_EMPTY_PATH));
    }
}
ACT(setxattr)
{
    static const char *const names[] = {"user.a", "user.b", "user.long", "trusted.t", "user.", "bogus.x", "user.old"};
    const char *n = names[draw(7)];
    size_t l = draw(200);
    fill(l);
    int f = (int[]){0, 0, XATTR_CREATE, XATTR_REPLACE, 8}[draw(5)];
    switch (draw(3)) {
    case 0: told("", setxattr(path(), n, room, l, f)); break;
    case 1: told("", lsetxattr(path(), n, room, l, f)); break;
    default: told("", fsetxattr(some(), n, room, l, f));
    }
}
ACT(removexattr)
{
    static const char *const names[] = {"user.a", "user.b", "user.old", "user.folder"};
    const char *n = names[draw(4)];
    switch (draw(3)) {
    case 0: told("", removexattr(path(), n)); break;
    case 1: told("", lremovexattr(path(), n)); break;
    default: told("", fremovexattr(some(), n));
    }
}
ACT(acl)                                /* user::rw-, user:7:rw-, group::r--, mask::rw-, other::--- */
{
    static const unsigned char acl[] = {2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 6, 0, 7, 0, 0, 0,
        4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255};
    const char *n = chance(60) ? "system.posix_acl_access" : "system.posix_acl_default";
    told("", chance(70) ? setxattr(plain(), n, acl, sizeof acl, 0) : removexattr(plain(), n));
}
ACT(umask) { told("", umask((mode_t[]){022, 077, 0, 027}[draw(4)])); }

/* -- streams ------------------------------------------------------------------------------------ */

static FILE **a_stream(void) { return &stream[draw(STREAMS)]; }
static const char *const stream_modes[] = {"r", "r+", "r+", "w", "w+", "a", "a+", "rx", "wx", "q", "r+e"};

ACT(fopen)
{
    FILE **f = a_stream();
    const char *p = plain();
    if (!strcmp(p, "p0") || !strcmp(p, "x"))
        return;
    if (*f)
        told("fclose", fclose(*f));
    struct stat s;                      /* an earlier line may have put a fifo or a device there */
    *f = stat(p, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode) ? NULL : fopen(p, stream_modes[draw(11)]);
    told("", *f ? fileno(*f) : -1);
}
ACT(freopen)
{
    FILE **f = a_stream();
    const char *p = plain();
    struct stat s;
    if (!*f || (stat(p, &s) == 0 && !S_ISREG(s.st_mode)))
        return;
    *f = freopen(chance(80) ? p : NULL, stream_modes[draw(7)], *f);
    told("", *f ? fileno(*f) : -1);
}
ACT(fclose) { FILE **f = a_stream(); if (*f) { told("", fclose(*f)); *f = NULL; } }
ACT(fwrite)
{
    FILE *f = *a_stream();
    if (!f || fwide(f, 0) > 0)
        return;
    size_t n = length();
    fill(n);
    told("", (long long)fwrite(room, 1, n, f));
    if (chance(50))
        told("fprintf", fprintf(f, "%s-%zu\n", "text", n));
    say(" e%d", !!ferror(f));
}
ACT(fread)
{
    FILE *f = *a_stream();
    if (!f || fwide(f, 0) > 0)
        return;
    if (chance(30))
        told("seek", fseek(f, 0, SEEK_CUR));
    long long n = (long long)fread(room, 1, length(), f);
    told_bytes("", n, room);
    if (chance(30)) {
        told("ungetc", ungetc('U', f));
        told("getc", getc(f));
        told("seek", fseek(f, 0, SEEK_CUR));     /* written to while a byte is pushed back glibc frees its buffer twice */
    }
    char *l = NULL;
    size_t got = 0;
    if (chance(30))
        told("getline", getline(&l, &got, f) >= 0);
    free(l);
    say(" e%d f%d", !!ferror(f), !!feof(f));
}
ACT(fseek)
{
    FILE *f = *a_stream();
    if (!f)
        return;
    told("", chance(50) ? fseek(f, draw(50000), draw(3)) : fseeko(f, chance(20) ? -1 : (off_t)draw(50000), SEEK_SET));
    told("ftell", ftell(f));
    clearerr(f);
}
ACT(fflush) { FILE *f = *a_stream(); told("", chance(20) ? fflush(NULL) : f ? fflush(f) : 0); }
ACT(setvbuf) { FILE *f = *a_stream(); if (f) told("", setvbuf(f, NULL, (int[]){_IONBF, _IOLBF, _IOFBF}[draw(3)], 4096)); }
ACT(tmpfile)
{
    FILE *f = tmpfile();
    if (!f)
        return;
    fill(9000);
    told("", (long long)fwrite(room, 1, 9000, f));
    rewind(f);
    told_bytes("", (long long)fread(room, 1, 10000, f), room);
    struct stat s;
    fstat(fileno(f), &s);
    say(" %o %lld x%d", s.st_mode, (long long)s.st_size, (int)s.st_nlink);
    told("fclose", fclose(f));
}

const struct act name_acts[] = {
    {"unlink", 14, act_unlink}, {"rmdir", 5, act_rmdir}, {"mkdir", 12, act_mkdir}, {"rename", 30, act_rename},
    {"link", 10, act_link}, {"symlink", 8, act_symlink}, {"readlink", 5, act_readlink}, {"mknod", 6, act_mknod},
    {"chdir", 3, act_chdir}, {"access", 5, act_access}, {"stat", 10, act_stat}, {"realpath", 3, act_realpath},
    {"glob", 2, act_glob}, {"nftw", 2, act_nftw}, {"pathconf", 1, act_statfs_free}, {0, 0, 0}};
const struct act attribute_acts[] = {
    {"chmod", 10, act_chmod}, {"chown", 6, act_chown}, {"times", 15, act_times}, {"setxattr", 12, act_setxattr},
    {"removexattr", 5, act_removexattr}, {"acl", 4, act_acl}, {"umask", 2, act_umask}, {0, 0, 0}};
const struct act stream_acts[] = {
    {"fopen", 14, act_fopen}, {"freopen", 4, act_freopen}, {"fclose", 6, act_fclose}, {"fwrite", 14, act_fwrite},
    {"fread", 12, act_fread}, {"fseek", 10, act_fseek}, {"fflush", 4, act_fflush}, {"setvbuf", 1, act_setvbuf},
    {"tmpfile", 2, act_tmpfile}, {0, 0, 0}};
