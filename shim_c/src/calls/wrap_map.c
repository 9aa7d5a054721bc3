/* wrap_map.c - files mapped into memory.  A mapping shows (and changes) the file in place without asking anybody.
 *
 * Whoever maps a tracked file writes it back, where it stays (settle.c).  May the mapping write, then the file's bytes
 * may change unseen from then on.  A shared mapping that cannot write yet, of a descriptor that can, only becomes one
 * that writes by mprotect: it is noted here, so that a program that maps for reading and writes with pwrite (LMDB)
 * costs no copy.
 */
#include "calls/calls.h"
#include "memory/image_engine.h"

#include <linux/io_uring.h>

#define NOTED 256
static LARGE struct range { uintptr_t start, end; uint32_t slot; } noted[NOTED];
static LARGE uint32_t noted_count;       /* beside its table: a child of vfork maps into memory that stays */

/* What buffer.c remembers of the program's pages is void.  Before a call that takes pages away and after it: a thread that
 * tries them in between finds them there. */
#define GUARD_INSTALL 102               /* of madvise, since Linux 6.13: pages that nobody may touch */
static void mapped_anew(void) { __atomic_add_fetch(&mm_map_generation, 1, __ATOMIC_RELAXED); }

/* 0 when there is no room.  Ranges are never taken out: one too many only means a copy too many. */
static int note_mapping(uintptr_t start, size_t length, uint32_t slot)
{
    int found = 0;
    mm_lock_own(&mm_noted_lock, MM_LOCK_MAPPINGS);
    for (uint32_t i = 0; i < noted_count && !found; i++)
        found = noted[i].slot == slot && noted[i].start <= start && start + length <= noted[i].end;
    if (!found && noted_count < NOTED) {
        noted[noted_count] = (struct range){ start, start + length, slot };
        __atomic_store_n(&noted_count, noted_count + 1, __ATOMIC_RELEASE);
        found = 1;
    }
    mm_unlock_own(&mm_noted_lock);
    return found;
}

/* A descriptor of the file, *ours if it has to be closed; -1: nothing leads to it any more. */
static int home_of(const struct mm_pif *p, uint32_t slot, int *ours)
{
    *ours = 0;
    for (int fd = 0; fd <= mm_top_fd; fd++)
        if (mm_fds[fd].fit && pif_of(fd) == slot)
            return fd;
    SCRATCH(kept);
    mm_kept_name(mm_area, slot, kept, SCRATCH_BYTES);
    const char *const names[] = { mm_path_at(mm_area, p->path), kept };
    for (int i = 0; i < 2; i++) {
        struct stat st;
        long fd = mm_open_spare(AT_FDCWD, names[i], O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
        if (fd >= 0 && sys(SYS_fstat, fd, &st) == 0 && st.st_dev == p->dev && st.st_ino == p->ino) {
            *ours = 1;
            return (int)fd;
        }
        if (fd >= 0)
            mm_close_spare((int)fd);
    }
    return -1;
}

static long now_writes(uint32_t slot)
{
    int ours;
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    if (!(p->flags & MM_USED))
        return 0;
    if (p->flags & MM_MAPPED)
        return mm_unseen_in(p), 0;
    int fd = home_of(p, slot, &ours);
    long r = fd < 0 ? 0 : mm_stay_home(slot, fd, MM_UNSEEN, 0);
    if (ours)
        mm_close_spare(fd);
    return r;
}

/* Before a protection changes: what of it becomes writable? */
static long before_protect(uintptr_t start, size_t length, int protection)
{
    long r = 0;
    uint32_t count = __atomic_load_n(&noted_count, __ATOMIC_ACQUIRE);
    if (LIKELY(!count) || !(protection & PROT_WRITE) || !mm_active)
        return 0;
    for (uint32_t i = 0; i < count && r == 0; i++) {
        if (noted[i].start < start + length && start < noted[i].end) {
            enter();
            r = now_writes(noted[i].slot);
            leave();
            mm_watch(noted[i].start, noted[i].end - noted[i].start);
        }
    }
    return r;
}

/* Has anybody in the run the file open for writing? */
static int being_written(uint32_t slot)
{
    for (uint32_t i = 1; i < mm_area->head->fit_count; i++) {
        struct mm_fit *f = mm_fit_at(mm_area, i);
        if (f->refs && f->slot == slot && (f->attributes & O_ACCMODE) != O_RDONLY)
            return 1;
    }
    return 0;
}

/* A file in memory with the bytes from a place on; it ends (SIGBUS) where the file ends.  Or -errno. */
static long private_copy_of(uint32_t slot, int fd, size_t length, off_t at)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    long size = mm_size(p, fd), copy = size < 0 ? size : sys(SYS_memfd_create, "metamori", MFD_CLOEXEC);
    if (copy < 0)
        return copy;
    SCRATCH(piece);
    struct rlimit now = { RLIM_INFINITY, RLIM_INFINITY };
    uint64_t mask = defer_handlers();
    mm_lift_limit(0);
    if (!mm_unlimited())
        sys(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &now);   /* beyond it there would be a signal */
    long r = (rlim_t)size > now.rlim_cur ? -EFBIG : sys(SYS_ftruncate, copy, size);
    for (off_t done = at; r >= 0 && done < size && done < at + (off_t)length; done += r) {
        r = mm_read(slot, fd, &(struct iovec){ piece, SCRATCH_BYTES }, 1, done);
        if (r == 0)                    /* it was cut meanwhile */
            break;
        if (r > 0)
            r = sys_pwrite((int)copy, piece, r, done);
    }
    mm_lift_limit(1);
    deliver_handlers(mask);
    if (r < 0)
        sys_close((int)copy);
    return r < 0 ? r : copy;
}

/* In isolation nothing is written back that need not: a private mapping of a file that nobody is writing shows a copy, where there
 * can be one. */
static int map_private_copy(uint32_t slot, void *address, size_t length, int protection, int flags, int fd, off_t at, void **r)
{
    long copy = private_copy_of(slot, fd, length, at);
    if (copy < 0)
        return 0;
    *r = REAL(mmap)(address, length, protection, flags, (int)copy, at);
    sys_close((int)copy);
    return 1;
}

static int access_mode(int fd) { return (int)mm_fit_at(mm_area, mm_fds[fd].fit)->attributes & O_ACCMODE; }

/* Nobody follows the file (yet). */
static uint32_t unfollowed(int fd)
{
    struct mm_fit *f = mm_fit_at(mm_area, mm_fds[fd].fit);
    mm_mapped_unfollowed(mm_area, f->dev, f->ino);
    return pif_of(fd);                 /* another process may have begun meanwhile */
}

static void *map_followed(uint32_t slot, void *address, size_t length, int protection, int flags, int fd, off_t at)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    int shared = (flags & MAP_TYPE) != MAP_PRIVATE, could = shared && access_mode(fd) == O_RDWR;
    void *r;
    if (ISOLATED(p) && !shared && !being_written(slot)
        && map_private_copy(slot, address, length, protection, flags, fd, at, &r))
        return r;
    int writes = could && (protection & PROT_WRITE);
    long e = mm_stay_home(slot, fd, writes ? MM_UNSEEN : 0, 0);
    r = e < 0 ? MAP_FAILED : REAL(mmap)(address, length, protection, flags, fd, at);
    if (r != MAP_FAILED && writes)
        mm_watch((uintptr_t)r, length);
    if (e < 0) {
        errno = e == -ENOSPC || e == -EDQUOT ? ENOMEM : (int)-e;
    } else if (r != MAP_FAILED && could && !writes && !note_mapping((uintptr_t)r, length, slot)) {
        e = mm_stay_home(slot, fd, MM_UNSEEN, 0);
        if (e < 0) {
            sys(SYS_munmap, r, length);
            errno = ENOMEM;
            r = MAP_FAILED;
        }
    }
    return r;
}

static void *map(void *address, size_t length, int protection, int flags, int fd, off_t at)
{
    fd = mm_theirs(fd);
    if (UNLIKELY(at == (off_t)IORING_OFF_SQES) && fd >= 0 && mm_active && !(flags & MAP_ANONYMOUS))
        mm_ring_mapped(fd);
    if (LIKELY(fd < 0 || fd >= MM_FDS || (flags & MAP_ANONYMOUS) || !mm_active || !mm_fds[fd].fit))
        return REAL(mmap)(address, length, protection, flags, fd, at);
    uint32_t slot = pif_of(fd);
    int refused = !length || (at & (MM_BLOCK - 1)) || (access_mode(fd) & O_WRONLY)
               || ((protection & PROT_WRITE) && (flags & MAP_TYPE) != MAP_PRIVATE && access_mode(fd) != O_RDWR);
    if (!slot && !refused)
        slot = unfollowed(fd);
    if (!slot || refused)              /* the kernel says why */
        return REAL(mmap)(address, length, protection, flags, fd, at);
    slot = enter_file(fd);
    if (!slot)
        return REAL(mmap)(address, length, protection, flags, fd, at);
    void *r = map_followed(slot, address, length, protection, flags, fd, at);
    leave();
    return r;
}

EXPORT void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t at)
{
    int instead = flags & MAP_FIXED;
    if (UNLIKELY(instead))
        mapped_anew();
    void *r = map(address, length, protection, flags, fd, at);
    if (!(flags & MAP_ANONYMOUS) && r != MAP_FAILED)
        mm_file_mapped((uintptr_t)r, length);
    if (UNLIKELY(mm_uffd >= 0) && r != MAP_FAILED && (flags & (MAP_ANONYMOUS | MAP_TYPE)) == (MAP_ANONYMOUS | MAP_PRIVATE))
        mm_watch_new((uintptr_t)r, length);
    if (UNLIKELY(instead))
        mapped_anew();
    return r;
}

EXPORT int munmap(void *address, size_t length)
{
    mapped_anew();
    MM_STOP("map.goes");
    int r = REAL(munmap)(address, length);
    mapped_anew();
    return r;
}

EXPORT int shmdt(const void *address)
{
    mapped_anew();
    int r = REAL(shmdt)(address);
    mapped_anew();
    return r;
}

EXPORT int brk(void *end)
{
    mapped_anew();
    int r = REAL(brk)(end);
    mapped_anew();
    return r;
}

EXPORT void *sbrk(intptr_t more)
{
    if (more >= 0)
        return REAL(sbrk)(more);
    mapped_anew();
    void *r = REAL(sbrk)(more);
    mapped_anew();
    return r;
}

static int map_fails(long e)
{
    errno = e == -ENOSPC || e == -EDQUOT ? ENOMEM : (int)-e;
    return -1;
}

EXPORT int mprotect(void *address, size_t length, int protection)
{
    mapped_anew();
    long e = before_protect((uintptr_t)address, length, protection);
    int r = e < 0 ? map_fails(e) : REAL(mprotect)(address, length, protection);
    mapped_anew();
    return r;
}

/* Noted before: an image may be asked for as soon as memory is under a key. */
EXPORT int pkey_mprotect(void *address, size_t length, int protection, int key)
{
    if (key > 0)
        __atomic_store_n(&mm_keys, 1, __ATOMIC_SEQ_CST);
    mapped_anew();
    long e = before_protect((uintptr_t)address, length, protection);
    int r = e < 0 ? map_fails(e) : REAL(pkey_mprotect)(address, length, protection, key);
    mapped_anew();
    return r;
}

EXPORT int madvise(void *address, size_t length, int advice)
{
    if (advice == MADV_REMOVE)         /* a hole in the file */
        mm_unseen();
    if (advice == MADV_DONTFORK || advice == MADV_WIPEONFORK)
        __atomic_store_n(&mm_kept_from_children, 1, __ATOMIC_SEQ_CST);
    int r = REAL(madvise)(address, length, advice);
    if (advice == GUARD_INSTALL)
        mapped_anew();
    if (advice == MADV_REMOVE)         /* a checkpoint may have come between */
        mm_unseen();
    return r;
}

EXPORT int msync(void *address, size_t length, int flags)
{
    mapped_barrier();
    int r = REAL(msync)(address, length, flags);
    if (r < 0 && mm_active && (uintptr_t)address <= mm_file_maps.last && (uintptr_t)address + length > mm_file_maps.first)
        mm_synced(-errno);
    return r;
}

EXPORT void *mremap(void *address, size_t old, size_t length, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    void *to = va_arg(list, void *);
    va_end(list);
    mapped_anew();
    void *r = REAL(mremap)(address, old, length, flags, to);
    mapped_anew();
    if (r != MAP_FAILED && (uintptr_t)address <= mm_file_maps.last && (uintptr_t)address >= mm_file_maps.first)
        mm_file_mapped((uintptr_t)r, length);
    if (r != MAP_FAILED && mm_active && mm_area->head->mapped)
        mm_watch((uintptr_t)r, length);
    uint32_t count = __atomic_load_n(&noted_count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; r != MAP_FAILED && i < count; i++) {
        uintptr_t from = (uintptr_t)address;
        if (noted[i].start <= from && from < noted[i].end && !note_mapping((uintptr_t)r, length, noted[i].slot) && mm_active) {
            enter();
            now_writes(noted[i].slot);
            leave();
        }
    }
    return r;
}

#define CALL(group, type, name, parameters)
#define ALIAS(group, alias, name) ALIAS_##group(alias, name)
#define ALIAS_map(alias, name) SYMBOL_ALIAS(alias, name)
#include "libc/aliases.h"
