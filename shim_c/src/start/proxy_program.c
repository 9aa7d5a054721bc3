/* proxy_program.c - the program that waits for its call: who it is, and what its arguments point to.
 *
 * Descriptors of a process stay its own when its number has come round, so they are kept as long as it lives: each thread of the
 * proxy has those of the program that it served last.
 */
#include "start/proxy.h"

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/kcmp.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL            /* Linux 6.9 */
#endif
#define STATUS_ROOM 4096               /* hundreds of groups */
#define FIRST_PIECE 256                /* few paths are longer */

struct mm_proxy_shared *mm_proxy_shared;
static struct { uid_t uid; gid_t gid; struct __user_cap_data_struct caps[2]; } own;    /* the proxy never changes them */
#define KERNELS 3
static dev_t kernels[KERNELS];
static int has_threads;                /* pidfds of threads */

int mm_still_waits(const struct mm_shown *call)
{
    uint64_t id = call->notice.id;
    return sys(SYS_ioctl, call->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

/* -- its memory --------------------------------------------------------------------------------------- */

/* Where the second page is not there, the first part has come. */
static long read_pages(const struct mm_shown *call, uint64_t address, void *to, size_t bytes)
{
    size_t first = 4096 - (address & 4095);
    if (first > bytes)
        first = bytes;
    struct iovec here = { to, bytes };
    struct iovec there[2] = { { (void *)(uintptr_t)address, first }, { (void *)(uintptr_t)(address + first), bytes - first } };
    return sys(SYS_process_vm_readv, call->notice.pid, &here, 1, there, bytes > first ? 2 : 1, 0);
}

long mm_shown_string(const struct mm_shown *call, uint64_t address, char *to, size_t room)
{
    for (size_t n = 0; n < room; ) {
        size_t piece = n ? 4096 : FIRST_PIECE;
        long r = read_pages(call, address + n, to + n, piece < room - n ? piece : room - n);
        if (r <= 0)
            return r < 0 ? r : -EFAULT;
        char *end = memchr(to + n, 0, (size_t)r);
        if (end)
            return end - to;
        n += (size_t)r;
    }
    return -ENAMETOOLONG;
}

int mm_shown_bytes(const struct mm_shown *call, uint64_t address, void *to, size_t bytes)
{
    struct iovec here = { to, bytes }, there = { (void *)(uintptr_t)address, bytes };
    return sys(SYS_process_vm_readv, call->notice.pid, &here, 1, &there, 1, 0) == (long)bytes;
}

int mm_hands_calls_over(const struct mm_shown *call)
{
    const __u64 *a = call->notice.data.args;
    int sets = call->notice.data.nr == SYS_seccomp ? (uint32_t)a[0] == SECCOMP_SET_MODE_FILTER : a[1] == SECCOMP_MODE_FILTER;
    struct sock_fprog filter;
    struct sock_filter step[BPF_MAXINSNS];         /* the kernel takes no more */
    if (!sets || !mm_shown_bytes(call, a[2], &filter, sizeof filter) || filter.len > BPF_MAXINSNS
        || !mm_shown_bytes(call, (uintptr_t)filter.filter, step, filter.len * sizeof *step))
        return 0;
    for (unsigned i = 0; i < filter.len; i++)
        if (step[i].code == (BPF_RET | BPF_K) && (step[i].k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_TRACE)
            return 1;
    return 0;
}

/* -- who it is ------------------------------------------------------------------------------------------ */

static int leads_to_same(int folder, const char *there, const char *here)
{
    struct stat a, b;
    return sys(SYS_newfstatat, folder, there, &a, 0) == 0 && sys(SYS_newfstatat, AT_FDCWD, here, &b, 0) == 0
        && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static const char *status_of(int fd, char *text, const char *field)
{
    long n = fd < 0 ? fd : sys_pread(fd, text, STATUS_ROOM - 1, 0);
    text[n > 0 ? n : 0] = 0;
    const char *found = strstr(text, field);
    return found ? found + strlen(field) : "";
}

static int umask_in(const char *status)
{
    const char *said = strstr(status, "\nUmask:");
    return said ? (int)strtoul(said + sizeof "\nUmask:" - 1, NULL, 8) : -1;
}

static int same_line(const char *one, const char *other)
{
    size_t n = strcspn(one, "\n");
    return n && strncmp(one, other, n + 1) == 0;
}

/* Files know it as the user and the group that it is, not as those of setfsuid and setfsgid. */
static int is_itself(const char *status)
{
    static const char *const line[] = { "\nUid:", "\nGid:" };
    for (int i = 0; i < 2; i++) {
        const char *said = strstr(status, line[i]);
        unsigned effective, to_files;
        if (!said || sscanf(said + 5, "%*u %u %*u %u", &effective, &to_files) != 2 || effective != to_files)
            return 0;
    }
    return 1;
}

/* By what it executes: no_new_privs, without which only root can set a filter. */
int mm_gets_no_rights(const struct mm_waiting *from)
{
    char text[STATUS_ROOM];
    return *status_of(from->status, text, "\nNoNewPrivs:\t") == '1';
}

int mm_has_own_table(const struct mm_waiting *from)
{
    return from->tid != from->tgid && sys(SYS_kcmp, from->tid, from->tgid, KCMP_FILES, 0, 0) > 0;
}

static int is_here(const struct mm_waiting *from)
{
    char theirs[STATUS_ROOM], ours[STATUS_ROOM];
    long own = sys_openat(AT_FDCWD, "/proc/thread-self/status", O_RDONLY | O_CLOEXEC, 0);
    int alike = same_line(status_of(from->status, theirs, "\nGroups:"), status_of((int)own, ours, "\nGroups:"));
    if (own >= 0)
        sys_close((int)own);
    return alike && (has_threads || !mm_has_own_table(from)) && is_itself(theirs) && leads_to_same(from->folder, "root", "/")
        && leads_to_same(from->folder, "ns/mnt", "/proc/self/ns/mnt") && leads_to_same(from->folder, "ns/user", "/proc/self/ns/user");
}

static void forget(struct mm_waiting *from)
{
    int *fds[] = { &from->process, &from->folder, &from->status };
    for (int i = 0; i < 3; i++) {
        if (*fds[i] >= 0)
            sys_close(*fds[i]);
        *fds[i] = -1;
    }
    from->tid = 0;
}

/* Who it is now.  A folder in /proc stays its thread's, and is empty when that has ended: one that answers is no other's. */
static int look_at_folder(struct mm_waiting *from)
{
    struct stat st;
    if (sys(SYS_newfstatat, from->folder, "task", &st, 0) < 0)
        return 0;
    from->uid = st.st_uid;
    from->gid = st.st_gid;
    return 1;
}

int mm_waiting_look(const struct mm_shown *call, struct mm_waiting *from)
{
    char text[STATUS_ROOM];
    if (from->tid == call->notice.pid && look_at_folder(from)) {
        if (mm_proxy_shared->elsewhere[call->listener - MM_PROXY_LISTENERS])
            from->here = is_here(from);
        return 1;
    }
    forget(from);
    from->tid = call->notice.pid;
    snprintf(text, sizeof text, "/proc/%u", from->tid);
    from->folder = (int)sys_openat(AT_FDCWD, text, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    from->is_at = from->goes && from->folder >= 0 && sys(SYS_fchdir, from->folder) == 0;
    from->status = from->folder < 0 ? -1 : (int)sys_openat(from->folder, "status", O_RDONLY | O_CLOEXEC, 0);
    from->tgid = (uint32_t)strtoul(status_of(from->status, text, "\nTgid:"), NULL, 10);
    from->umask = umask_in(text);
    from->process = !from->tgid ? -1 : (int)sys(SYS_pidfd_open, has_threads ? from->tid : from->tgid, has_threads ? PIDFD_THREAD : 0);
    from->here = from->process >= 0 && is_here(from);
    if (from->process < 0 || !look_at_folder(from) || !mm_still_waits(call)) {
        forget(from);
        return 0;
    }
    return 1;
}

void mm_proxy_know_itself(void)
{
    static const char *const folder[KERNELS] = { "/proc", "/sys", "/sys/fs/cgroup" };
    struct statfs fs;
    struct stat st;
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    own.uid = geteuid();
    own.gid = getegid();
    sys(SYS_capget, &head, own.caps);
    long thread = sys(SYS_pidfd_open, sys_getpid(), PIDFD_THREAD);
    has_threads = thread >= 0;
    if (has_threads)
        sys_close((int)thread);
    for (int i = 0; i < KERNELS; i++)
        if (sys(SYS_newfstatat, AT_FDCWD, folder[i], &st, 0) == 0 && sys(SYS_statfs, folder[i], &fs) == 0
            && (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC || fs.f_type == CGROUP2_SUPER_MAGIC))
            kernels[i] = st.st_dev;    /* else nothing is mounted there, and files of users may be on its filesystem */
}

int mm_waiting_is_like_us(const struct mm_shown *call, const struct mm_waiting *from)
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, (int)call->notice.pid };
    struct __user_cap_data_struct theirs[2] = { { 0 } };
    return from->here && from->uid == own.uid && from->gid == own.gid && sys(SYS_capget, &head, theirs) == 0
        && theirs[0].effective == own.caps[0].effective && theirs[1].effective == own.caps[1].effective;
}

int mm_is_own_file(const struct stat *st) { return st->st_uid == own.uid; }

/* Even regular files here may depend on who opens them. */
int mm_is_kernels_file(const struct stat *st)
{
    int found = 0;
    for (int i = 0; i < KERNELS; i++)
        found |= st->st_dev == kernels[i];
    return found;
}

/* -- what it has ---------------------------------------------------------------------------------------- */

/* What is made gets the modes that it would get there.  0: they cannot be known.  Nobody behind this listener has called umask where
 * no such call was shown; to ask for it takes longer than most calls that make a name. */
int mm_take_umask(const struct mm_shown *call, const struct mm_waiting *from)
{
    char text[STATUS_ROOM];
    int mask = from->umask;
    if (mask < 0 || __atomic_load_n(&mm_proxy_shared->own_umask[call->listener - MM_PROXY_LISTENERS], __ATOMIC_ACQUIRE)) {
        status_of(from->status, text, "");
        mask = umask_in(text);
    }
    if (mask >= 0)
        umask((mode_t)mask);
    return mask >= 0;
}

long mm_shown_descriptor(const struct mm_shown *call, const struct mm_waiting *from, int fd)
{
    long own = sys(SYS_pidfd_getfd, from->process, fd, 0);
    if (own >= 0 && !mm_still_waits(call)) {
        sys_close((int)own);
        own = -ESRCH;
    }
    return own;
}

/* Would it get a descriptor?  A file that the kernel would not have opened for it must not be made, or made empty. */
int mm_has_number_left(const struct mm_waiting *from)
{
    struct rlimit files;
    if (sys(SYS_prlimit64, from->tgid, RLIMIT_NOFILE, 0, &files) < 0 || files.rlim_cur > INT_MAX)
        return 1;
    for (long fd = (long)files.rlim_cur - 1; fd >= 0; fd--) {  /* most often the highest is free */
        long r = sys(SYS_pidfd_getfd, from->process, fd, 0);
        if (r < 0)
            return 1;
        sys_close((int)r);
    }
    return 0;
}

/* Where `metamori run` is gone: on the program's standard error. */
static void say_there(const struct mm_shown *call, const struct mm_waiting *from, uint64_t key, const char *text)
{
    char line[MM_WORDS_BYTES];
    long out = mm_shown_descriptor(call, from, 2);
    struct pollfd room = { (int)out, POLLOUT, 0 };
    struct timespec now = { 0, 0 };
    if (out >= 0 && sys(SYS_ppoll, &room, 1, &now, 0, 8) > 0 && mm_first_time(key))
        sys(SYS_write, out, line, snprintf(line, sizeof line, "metamori: %s\n", text));
    if (out >= 0)
        sys_close((int)out);
}

void mm_say_of(const struct mm_shown *call, const struct mm_waiting *from, uint64_t key, const char *text)
{
    if (!mm_run_is_watched(mm_area))
        say_there(call, from, key, text);
    else if (mm_first_time(key))
        mm_say("%s", text);
}

/* What it does the kernel does, and nobody notes it. */
void mm_say_not_tracked(const struct mm_shown *call, const struct mm_waiting *from, uint64_t key, const char *why)
{
    char name[32] = "", text[256];
    long fd = sys_openat(from->folder, "comm", O_RDONLY | O_CLOEXEC, 0), n = fd < 0 ? fd : sys_pread((int)fd, name, sizeof name - 1, 0);
    if (fd >= 0)
        sys_close((int)fd);
    name[strcspn(name, "\n")] = 0;
    if (n <= 0 || !mm_still_waits(call))
        return;
    snprintf(text, sizeof text, "%s cannot be tracked: %s are not checkpointed", name, why);
    mm_say_of(call, from, key, text);
}

/* Are the calls there that look into a process? */
static int can_look(int pid)
{
    static int can;
    long process = can ? -1 : sys(SYS_pidfd_open, pid, 0), fd = process < 0 ? process : sys(SYS_pidfd_getfd, process, 0, 0);
    can |= fd >= 0 || fd == -EBADF;
    if (fd >= 0)
        sys_close((int)fd);
    if (process >= 0)
        sys_close((int)process);
    return can;
}

/* A read of what is not there: is it refused, or only not there?  Who may read may have descriptors too. */
int mm_may_look_into(int pid)
{
    char byte;
    struct iovec here = { &byte, 1 }, there = { NULL, 1 };
    return can_look(pid) && sys(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0) == -EFAULT;
}
