/* mount_view.c - processes for which names lead elsewhere than for the rest of the run: after chroot, or among other mounts.
 *
 * A checkpoint looks at names, and a restore changes what stands there.  So a name that leads elsewhere here is none of the run's:
 * it is not tracked.  Those that lead the same way are, and so are files that are known already, by any name.
 */
#include "names/names.h"

#include <sys/stat.h>

int mm_elsewhere;

/* When a process joins: its folder of the run, if mounts are its own, becomes that of `metamori run` (by /proc/PID/root: among the
 * mounts that the run began with).  Where that is not allowed (a user namespace), names are taken for the run's. */
void mm_join_elsewhere(struct mm_area *area)
{
    struct stat st;
    SCRATCH(path);
    if (!area->head->mount_namespace || !area->head->supervisor || sys(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/mnt", &st, 0) < 0
        || st.st_ino == area->head->mount_namespace || area->folder <= 0)
        return;
    snprintf(path, 4096, "/proc/%u/root%s/run", area->head->supervisor, area->store);
    long folder = sys_openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (folder < 0)
        return;
    if (sys(SYS_dup3, folder, area->folder, O_CLOEXEC) >= 0)
        mm_elsewhere = 1;
    sys_close((int)folder);
}

void mm_said_elsewhere(const char *path)
{
    if (mm_first_time(11))
        mm_say("a process has another root, or other mounts: files whose names lead elsewhere there are not tracked (%s)", path);
}

static long stands(int dir, const char *path, struct stat *st)
{
    return sys(SYS_newfstatat, dir, path, st, AT_SYMLINK_NOFOLLOW);
}

/* path: canonical.  From the store's folder, which was opened before, the way up ends at the root that the run began with, and the
 * way down meets what is mounted there. */
int mm_leads_elsewhere(const char *path)
{
    SCRATCH(here);
    SCRATCH(there);
    struct stat a, b;
    size_t up = 3;
    for (const char *c = mm_area->store; *c; c++)
        up += 3 * (*c == '/');
    if (mm_area->folder <= 0 || up + 3 + strlen(path) >= 4096)
        return 1;
    for (size_t i = 0; i < up; i += 3)
        memcpy(there + i, "../", 3);
    strcpy(there + up, path[1] ? path + 1 : ".");
    strcpy(here, path);
    long in_here = stands(AT_FDCWD, here, &a), in_there = stands(mm_area->folder, there, &b);
    if (in_here < 0 && in_there < 0) { /* a new name: it is its folder's */
        char *slash = strrchr(here, '/');
        slash[slash == here] = 0;
        *strrchr(there, '/') = 0;
        in_here = stands(AT_FDCWD, here, &a), in_there = stands(mm_area->folder, there, &b);
    }
    if (in_here == 0 && in_there == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return 0;
    if (in_here == 0)
        mm_said_elsewhere(path);
    return 1;
}
