/* replace_inode.c - O_TRUNC of a file that an index knows: its inode goes into the store as it is, and the program goes on in a
 * fresh one, so that no byte is copied and none has to reach the disk first (docs/adr/0005).
 *
 * Only where nobody can tell: one name, nobody else has it open (a write lease is granted) or may hold it otherwise, same owner,
 * no extended attributes, same flags, the store on the same file system.  Otherwise the bytes are saved and the file is truncated in
 * place.  The fresh file is made in the run area: what a kill leaves of it goes with that.
 */
#include "descriptors/descriptors.h"

#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#define WORTH (1 << 20)                /* bytes; below, a copy is as quick if nothing waits for it */

#define NOTICE 64                      /* the highest real-time signal: each one is queued, none takes another's place */
#define OTHERS 8

/* The kernel's notice is taken out of this thread's queue, where it is blocked.  Others with that number, which are the
 * program's, go back to where they came from. */
static void take_notice(int fd)
{
    uint64_t pending = 0, one = 1ull << (NOTICE - 1);
    siginfo_t info[OTHERS];
    struct timespec now = { 0, 0 };
    int n = 0, taken = 0;
    sys(SYS_rt_sigpending, &pending, 8);
    while ((pending & one) && !taken && n < OTHERS && sys(SYS_rt_sigtimedwait, &one, &info[n], &now, 8) == NOTICE) {
        taken = info[n].si_code == POLL_MSG && info[n].si_fd == fd;
        n += !taken;
    }
    for (int i = 0; i < n; i++) {
        if (info[i].si_code == SI_TKILL)
            sys(SYS_rt_tgsigqueueinfo, sys_getpid(), sys_gettid(), NOTICE, &info[i]);
        else
            sys(SYS_rt_sigqueueinfo, sys_getpid(), NOTICE, &info[i]);
    }
}

/* A write lease is granted where nobody else has the file open.  Who opens it before the lease is given back is told to wait,
 * and the one who has it gets a signal: SIGIO, which ends a program, unless another thread and another number were named. */
static int nobody_else(int fd)
{
    struct f_owner_ex owner = { F_OWNER_TID, (pid_t)sys_gettid() };
    uint64_t mask = sys_mask_all();
    int alone = sys(SYS_fcntl, fd, F_SETSIG, NOTICE) == 0 && sys(SYS_fcntl, fd, F_SETOWN_EX, &owner) == 0
             && sys(SYS_fcntl, fd, F_SETLEASE, F_WRLCK) == 0;
    if (alone) {
        MM_STOP("fresh.leased");
        sys(SYS_fcntl, fd, F_SETLEASE, F_UNLCK);
        take_notice(fd);
    }
    owner.pid = 0;
    sys(SYS_fcntl, fd, F_SETOWN_EX, &owner);
    sys(SYS_fcntl, fd, F_SETSIG, 0);
    sys_mask_back(mask);
    return alone;
}

static int suits(uint32_t slot, int fd, const struct stat *st)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    if (mm_area->head->flags & (MM_JOB | MM_INODES_STAY))      /* who has it open on another machine is not known here */
        return 0;
    if (mm_area->head->untracked)      /* nor what such a program watches */
        return 0;
    struct stat store;
    uint64_t worth = mm_area->head->flags & MM_POWER ? 1 : WORTH;
    return p->fresh_from >= worth && p->fresh_from != MM_NO_LIMIT && p->refs == 1
        && !(p->flags & (MM_VIRTUAL | MM_HOME | MM_NAMELESS)) && st->st_nlink == 1 && sys(SYS_flistxattr, fd, 0, 0) == 0
        && sys(SYS_newfstatat, AT_FDCWD, mm_area->store, &store, 0) == 0 && store.st_dev == st->st_dev
        && nobody_else(fd);
}

/* What chattr sets; 0 where there is no such thing. */
static unsigned long inode_flags(int fd)
{
    unsigned long flags = 0;
    return sys(SYS_ioctl, fd, FS_IOC_GETFLAGS, &flags) == 0 ? flags & FS_FL_USER_MODIFIABLE : 0;
}

/* The truncation makes ext4 write the file out when it is closed, as natively: it knows an emptied file by that. */
static int like(int fd, int old_fd, const struct stat *old)
{
    struct stat st;
    sys(SYS_ftruncate, fd, 0);
    return inode_flags(fd) == inode_flags(old_fd) && sys(SYS_flistxattr, fd, 0, 0) == 0
        && sys(SYS_fchmod, fd, old->st_mode & 07777) == 0 && sys(SYS_fstat, fd, &st) == 0
        && ((st.st_uid == old->st_uid && st.st_gid == old->st_gid)
            || (sys(SYS_fchown, fd, old->st_uid, old->st_gid) == 0 && sys(SYS_fchmod, fd, old->st_mode & 07777) == 0));
}

/* Since it was asked?  He would go on with the old file.  Who comes from here on waits for the lock of its names, which is held, finds
 * it without a name, and opens what has it by then. */
static int somebody_came(uint32_t slot, int fd) { return mm_pif_at(mm_area, slot)->refs != 1 || !nobody_else(fd); }

static int begin_anew(uint32_t slot, int fd, int flags, const char *name)
{
    SCRATCH(temporary);
    struct stat st;
    struct mm_doomed doomed = { 0 };
    struct statx seen;
    MM_ASSERT(mm_name_is_held(name));
    if (mm_path_of(fd, temporary, 4096) < 0 || strcmp(temporary, name) != 0 || sys(SYS_fstat, fd, &st) < 0
        || !suits(slot, fd, &st))
        return 0;
    snprintf(temporary, SCRATCH_BYTES, "%s/run/fresh.%ld", mm_area->store, sys_gettid());
    long maker = sys_openat(AT_FDCWD, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (maker < 0)
        return 0;
    /* opened once more: to the kernel, too, the program has opened what was there (F_CREATED_QUERY) */
    long fresh = sys_openat(AT_FDCWD, temporary, (flags & ~(O_TRUNC | O_CREAT | O_EXCL)) | O_CLOEXEC, 0);
    sys_close((int)maker);
    int alike = fresh >= 0 && like((int)fresh, fd, &st);
    MM_STOP("fresh.alike");
    long looked = mm_look_at(name, &seen);
    if (!alike || mm_touch_looked(name, looked, &seen) < 0 || mm_keep(name, looked, &seen, NULL, &doomed) < 0 || doomed.slot != slot
        || somebody_came(slot, fd) || sys(SYS_renameat, AT_FDCWD, temporary, AT_FDCWD, name) < 0) {
        mm_spared(&doomed);
        sys(SYS_unlinkat, AT_FDCWD, temporary, 0);
        if (fresh >= 0)
            sys_close((int)fresh);
        return 0;
    }
    mm_gone(&doomed);
    mm_closing(fd);
    sys(SYS_dup3, fresh, fd, flags & O_CLOEXEC);
    sys_close((int)fresh);
    mm_opened(fd, flags & ~O_TRUNC, 0, 1, name);
    return 1;
}

/* Something of the run is about to hold a file without having it open (O_PATH, a watch, a handle), which keeps no lease from others:
 * from now on none gets another inode.  Who was about to give one has done so when this returns.  flags: as of newfstatat. */
static void inodes_stay(int dir, const char *path, int flags, int folders_too)
{
    struct stat st;
    struct mm_names names;
    if (mm_area->head->flags & MM_INODES_STAY || sys(SYS_newfstatat, dir, path, &st, flags) < 0
        || (!S_ISREG(st.st_mode) && !(folders_too && S_ISDIR(st.st_mode))))
        return;
    enter();
    mm_hold_all_names(&names);
    __atomic_or_fetch(&mm_area->head->flags, MM_INODES_STAY, __ATOMIC_SEQ_CST);
    mm_let_names_go(&names);
    leave();
}

void mm_inodes_stay(int dir, const char *path, int flags) { inodes_stay(dir, path, flags, 0); }

/* Who watches a folder is told of a file that takes another one's place in it. */
void mm_inodes_watched(int dir, const char *path, int flags) { inodes_stay(dir, path, flags, 1); }

/* fd becomes a descriptor of the fresh file.  1: done; 0: not possible, nothing has changed. */
int mm_start_fresh(uint32_t slot, int fd, int flags)
{
    SCRATCH(name);
    struct stat st;
    struct mm_names names;
    if (sys(SYS_fstat, fd, &st) < 0 || mm_path_of(fd, name, 4096) < 0 || !suits(slot, fd, &st))
        return 0;
    mm_hold_names(&names, name, NULL);
    int done = begin_anew(slot, fd, flags, name);
    mm_let_names_go(&names);
    return done;
}

/* Nobody follows the file.  In tracefs O_TRUNC is no matter of lengths: what is opened with it has forgotten what it held. */
long mm_empty_unfollowed(int fd, int flags)
{
    char path[40];
    struct statfs fs;
    if (sys(SYS_fstatfs, fd, &fs) < 0 || fs.f_type != TRACEFS_MAGIC)
        return sys(SYS_ftruncate, fd, 0);
    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
    long again = mm_open_own(path, flags & ~(O_CREAT | O_EXCL | O_NOFOLLOW)), r = again;
    if (again >= 0) {
        r = sys(SYS_dup3, again, fd, flags & O_CLOEXEC);
        mm_close_spare((int)again);
    }
    return r < 0 ? r : 0;
}
