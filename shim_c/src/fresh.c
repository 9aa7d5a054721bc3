/* fresh.c - O_TRUNC of a file that an index knows: its inode goes into the store as it is, and the program goes on in a
 * fresh one, so that no byte is copied and none has to reach the disk first (docs/adr/0005).
 *
 * Only where nobody can tell: one name, nobody else has it open (a write lease is granted), same owner, no extended
 * attributes, same flags, the store on the same file system.  Otherwise the bytes are saved and the file is truncated in
 * place.  The fresh file is made in the run area: what a kill leaves of it goes with that.
 */
#include "shim.h"
#include "names.h"

#include <linux/fs.h>

#define WORTH (1 << 20)                /* bytes; below, a copy is as quick if nothing waits for it */

static int nobody_else(int fd)
{
    if (sys(SYS_fcntl, fd, F_SETLEASE, F_WRLCK) < 0)
        return 0;
    sys(SYS_fcntl, fd, F_SETLEASE, F_UNLCK);
    return 1;
}

static int suits(uint32_t slot, int fd, const struct stat *st)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    struct stat store;
    uint64_t worth = mm_area->head->flags & MM_POWER ? 1 : WORTH;
    return p->fresh_from >= worth && p->fresh_from != MM_NO_LIMIT && p->refs == 1
        && !(p->flags & (MM_VIRTUAL | MM_HOME | MM_NAMELESS)) && st->st_nlink == 1 && sys(SYS_flistxattr, fd, 0, 0) == 0
        && sys(SYS_newfstatat, AT_FDCWD, mm_area->store, &store, 0) == 0 && store.st_dev == st->st_dev
        && nobody_else(fd);
}

/* What chattr sets; 0 where there is no such thing. */
static unsigned long flags_of(int fd)
{
    unsigned long flags = 0;
    return sys(SYS_ioctl, fd, FS_IOC_GETFLAGS, &flags) == 0 ? flags & FS_FL_USER_MODIFIABLE : 0;
}

/* The truncation makes ext4 write the file out when it is closed, as natively: it knows an emptied file by that. */
static int like(int fd, int old_fd, const struct stat *old)
{
    struct stat st;
    sys(SYS_ftruncate, fd, 0);
    return flags_of(fd) == flags_of(old_fd) && sys(SYS_flistxattr, fd, 0, 0) == 0
        && sys(SYS_fchmod, fd, old->st_mode & 07777) == 0 && sys(SYS_fstat, fd, &st) == 0
        && ((st.st_uid == old->st_uid && st.st_gid == old->st_gid)
            || (sys(SYS_fchown, fd, old->st_uid, old->st_gid) == 0 && sys(SYS_fchmod, fd, old->st_mode & 07777) == 0));
}

/* fd becomes a descriptor of the fresh file.  1: done; 0: not possible, nothing has changed. */
int mm_start_fresh(uint32_t slot, int fd, int flags)
{
    SCRATCH(name);
    SCRATCH(temporary);
    struct stat st;
    struct mm_doomed doomed = { 0, 0, 0 };
    if (sys(SYS_fstat, fd, &st) < 0 || mm_path_of(fd, name, 4096) < 0 || !suits(slot, fd, &st))
        return 0;
    snprintf(temporary, SCRATCH_BYTES, "%s/run/fresh.%ld", mm_area->store, sys_gettid());
    long fresh = sys_openat(AT_FDCWD, temporary, (flags & ~O_TRUNC) | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fresh < 0)
        return 0;
    if (!like((int)fresh, fd, &st) || mm_touch(name) < 0 || mm_keep(name, &doomed) < 0
        || sys(SYS_renameat, AT_FDCWD, temporary, AT_FDCWD, name) < 0) {
        mm_spared(&doomed);
        sys(SYS_unlinkat, AT_FDCWD, temporary, 0);
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
