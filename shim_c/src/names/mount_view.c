/* mount_view.c - processes for which names lead elsewhere than for the rest of the run: after chroot, or among other mounts.
 *
 * A checkpoint looks at names, and a restore changes what stands there.  So a name that leads elsewhere here is none of the run's:
 * it is not tracked.  Those that lead the same way are, and so are files that are known already, by any name.
 */
#include "names/names.h"

#include <sys/stat.h>

int mm_elsewhere;

/* Are the mounts here others than those that the run began with?  That of the root has another number among others; before Linux
 * 5.8 nobody says it, and a look at the namespace takes fifteen microseconds of every start. */
static int other_mounts(const struct mm_header *head)
{
    uint64_t here = mm_mounts_here();
    return head->mount_namespace && here && (here ^ head->mount_namespace) >> 63 == 0 && here != head->mount_namespace;
}

/* When a process joins: its folder of the run, if mounts are its own, becomes that of `metamori run` (by /proc/PID/root: among the
 * mounts that the run began with).  Where that is not allowed (a user namespace), names are taken for the run's. */
void mm_join_elsewhere(struct mm_area *area)
{
    SCRATCH(path);
    if (!area->head->supervisor || area->folder <= 0 || !other_mounts(area->head))
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
