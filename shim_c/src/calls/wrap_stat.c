/* wrap_stat.c - sizes and times as the program made them, link counts without the store's. */
#include "calls/calls.h"
#include "memory/image_engine.h"

static struct mm_pif *differs(int dir, const char *path, int flags, mode_t mode, uint64_t dev, uint64_t ino)
{
    if (LIKELY(!mm_active) || !S_ISREG(mode) || !__atomic_load_n(&mm_area->head->virtual_count, __ATOMIC_ACQUIRE))
        return NULL;
    uint32_t slot = mm_pif_there(mm_area, dir, path, flags, dev, ino);
    return slot ? mm_pif_at(mm_area, slot) : NULL;
}

static int ours_linked(const struct mm_pif *p) { return (p->flags & (MM_KEPT | MM_COPIED)) == MM_KEPT; }

static uint64_t units(uint64_t size) { return (size + MM_BLOCK - 1) / MM_BLOCK * (MM_BLOCK / 512); }

/* In units of 512 bytes: those in place and the redirected ones, of which some may stand for the same, but for what is
 * held beyond the end never more than the size takes. A hole is no block: whoever copies asks by this whether to look
 * for holes. */
static uint64_t blocks_of(const struct mm_pif *p, uint64_t home, uint64_t size)
{
    if (home > units(p->home_limit))
        home = units(p->home_limit);
    uint64_t sum = home + __atomic_load_n(&p->redirected, __ATOMIC_RELAXED) * (MM_BLOCK / 512), full = units(size);
    uint64_t most = home > full ? home : full;
    return sum < most ? sum : most;
}

/* In isolation a file may have been written back since the kernel was asked, when its size was not yet the kernel's. */
static int back_by_now(const struct mm_pif *p)
{
    MM_STOP("stat.asked");
    return UNLIKELY(mm_area->head->flags & MM_ISOLATE) && !(__atomic_load_n(&p->flags, __ATOMIC_ACQUIRE) & MM_VIRTUAL);
}

/* dir, path, flags: what was asked */
static int corrected(int r, struct stat *st, int dir, const char *path, int flags)
{
    struct mm_pif *p = r == 0 ? differs(dir, path, flags, st->st_mode, st->st_dev, st->st_ino) : NULL;
    struct stat again;
    if (!p)
        return r;
    if (back_by_now(p) && REAL(fstatat)(dir, path, &again, flags) == 0 && again.st_ino == st->st_ino && again.st_dev == st->st_dev)
        *st = again;
    if (__atomic_load_n(&p->flags, __ATOMIC_ACQUIRE) & MM_VIRTUAL)
        st->st_size = p->size;
    st->st_blocks = blocks_of(p, st->st_blocks, st->st_size);
    int64_t ns = p->mtime_ns;
    if (ns && sys_is_later(ns, st->st_mtim.tv_sec, st->st_mtim.tv_nsec))
        st->st_mtim = (struct timespec){ ns / 1000000000u, ns % 1000000000u };
    if (ns && sys_is_later(ns, st->st_ctim.tv_sec, st->st_ctim.tv_nsec))
        st->st_ctim = (struct timespec){ ns / 1000000000u, ns % 1000000000u };   /* a chmod is the kernel's, and may be later */
    if (ours_linked(p) && st->st_nlink)
        st->st_nlink--;
    return r;
}

/* No file has a size or a time of its own yet: the kernel's answer is the answer. */
static int kernels_word(void) { return mm_area && LIKELY(!__atomic_load_n(&mm_area->head->virtual_count, __ATOMIC_ACQUIRE)); }

/* In a program that came back with its memory. */
static int is_in_proc(const char *path, struct stat *out, int flags, long *r)
{
    return UNLIKELY(mm_memory_head) && mm_have_come_back() && (*r = mm_in_proc(path, flags, out)) != MM_NOT_IN_PROC;
}

EXPORT int stat(const char *path, struct stat *out)
{
    long r;
    if (is_in_proc(path, out, 0, &r))
        return (int)result(r);
    return kernels_word() ? real_stat(path, out) : corrected(REAL(stat)(path, out), out, AT_FDCWD, path, 0);
}
EXPORT int fstat(int fd, struct stat *out)
{
    if (UNLIKELY(mm_is_ours(fd))) {
        errno = EBADF;
        return -1;
    }
    return kernels_word() ? real_fstat(fd, out) : corrected(REAL(fstat)(fd, out), out, fd, "", AT_EMPTY_PATH);
}
EXPORT int lstat(const char *path, struct stat *out)
{
    long r;
    if (is_in_proc(path, out, AT_SYMLINK_NOFOLLOW, &r))
        return (int)result(r);
    return kernels_word() ? real_lstat(path, out) : corrected(REAL(lstat)(path, out), out, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
}
EXPORT int fstatat(int dir, const char *path, struct stat *out, int flags)
{
    long r;
    if (is_in_proc(path, out, flags, &r))
        return (int)result(r);
    return kernels_word() ? real_fstatat(dir, path, out, flags)
                          : corrected(REAL(fstatat)(dir, path, out, flags), out, dir, path, flags);
}
EXPORT int __xstat(int version, const char *path, struct stat *out)
{
    return corrected(REAL(__xstat)(version, path, out), out, AT_FDCWD, path, 0);
}
EXPORT int __fxstat(int version, int fd, struct stat *out)
{
    return corrected(REAL(__fxstat)(version, fd, out), out, fd, "", AT_EMPTY_PATH);
}
EXPORT int __lxstat(int version, const char *path, struct stat *out)
{
    return corrected(REAL(__lxstat)(version, path, out), out, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
}
EXPORT int __fxstatat(int version, int dir, const char *path, struct stat *out, int flags)
{
    return corrected(REAL(__fxstatat)(version, dir, path, out, flags), out, dir, path, flags);
}

/* Walks of folders ask by internal calls. */
static __thread int (*walker)(const char *, const struct stat *, int, struct FTW *) __attribute__((tls_model("initial-exec")));
static __thread int (*old_walker)(const char *, const struct stat *, int) __attribute__((tls_model("initial-exec")));

static int walk(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    struct stat mine = *st;
    corrected(kind == FTW_NS ? -1 : 0, &mine, AT_FDCWD, path, kind == FTW_SL ? AT_SYMLINK_NOFOLLOW : 0);
    return walker(path, &mine, kind, where);
}
static int old_walk(const char *path, const struct stat *st, int kind)
{
    struct stat mine = *st;
    corrected(kind == FTW_NS ? -1 : 0, &mine, AT_FDCWD, path, kind == FTW_SL ? AT_SYMLINK_NOFOLLOW : 0);
    return old_walker(path, &mine, kind);
}

EXPORT int nftw(const char *path, __nftw_func_t function, int descriptors, int flags)
{
    __nftw_func_t outer = walker;
    walker = function;
    int r = REAL(nftw)(path, walk, descriptors, flags);
    walker = outer;
    return r;
}
EXPORT int ftw(const char *path, __ftw_func_t function, int descriptors)
{
    __ftw_func_t outer = old_walker;
    old_walker = function;
    int r = REAL(ftw)(path, old_walk, descriptors);
    old_walker = outer;
    return r;
}

static int differ(void) { return mm_active && __atomic_load_n(&mm_area->head->virtual_count, __ATOMIC_ACQUIRE); }

EXPORT FTSENT *fts_read(FTS *walk)
{
    FTSENT *entry = REAL(fts_read)(walk);
    int saved = errno;
    if (entry && entry->fts_info == FTS_F && UNLIKELY(differ()))
        fstatat(AT_FDCWD, entry->fts_accpath, entry->fts_statp, walk->fts_options & FTS_LOGICAL ? 0 : AT_SYMLINK_NOFOLLOW);
    errno = saved;
    return entry;
}

/* The same entries come by fts_read later: the link count, which is not put right twice, only there. */
EXPORT FTSENT *fts_children(FTS *walk, int options)
{
    FTSENT *first = REAL(fts_children)(walk, options);
    for (FTSENT *entry = first; entry && UNLIKELY(differ()); entry = entry->fts_link) {
        nlink_t links = entry->fts_info == FTS_F ? entry->fts_statp->st_nlink : 0;
        if (entry->fts_info == FTS_F) {
            corrected(0, entry->fts_statp, AT_FDCWD, entry->fts_accpath, 0);
            entry->fts_statp->st_nlink = links;
        }
    }
    return first;
}

EXPORT int statx(int dir, const char *given, int flags, unsigned mask, struct statx *out)
{
    int r = MM_BY_NAME(int, path, REAL(statx)(mm_theirs(dir), path, flags, mask, out));
    struct mm_pif *p = r == 0 ? differs(dir, given, flags, out->stx_mode,
                                        sys_dev(out->stx_dev_major, out->stx_dev_minor), out->stx_ino) : NULL;
    struct statx again;
    if (!p)
        return r;
    if (back_by_now(p) && sys_statx(mm_theirs(dir), given, flags, mask, &again) == 0 && again.stx_ino == out->stx_ino)
        *out = again;
    if (__atomic_load_n(&p->flags, __ATOMIC_ACQUIRE) & MM_VIRTUAL)
        out->stx_size = p->size;
    out->stx_blocks = blocks_of(p, out->stx_blocks, out->stx_size);
    struct statx_timestamp *times[] = { &out->stx_mtime, &out->stx_ctime };
    for (int i = 0; i < 2; i++) {
        if (p->mtime_ns && p->mtime_ns > sys_ns(*times[i])) {
            times[i]->tv_sec = p->mtime_ns / 1000000000u;
            times[i]->tv_nsec = p->mtime_ns % 1000000000u;
        }
    }
    if (ours_linked(p) && out->stx_nlink)
        out->stx_nlink--;
    return r;
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_stat(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
