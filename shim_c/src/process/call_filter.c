/* call_filter.c - programs that our library will not be in: the kernel shows their calls to the run's proxy (docs/adr/0044).
 *
 * A seccomp filter lets all calls pass but those that change names or attributes or open a file for writing.  These go to a
 * listener, whose descriptor is sent to the proxy (start/proxy.c) before the program is executed.  What the program starts
 * inherits the filter.  A filter never goes away again: so all that can fail is tried before it is set, and nobody is waited for.
 * Runs between fork and exec: system calls only, no allocation; and while the process's limits are held (mm_limit_begin).
 */
#include "process/process.h"
#include "process/call_filter.h"
#include "process/listener.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/wait.h>

#if defined(__x86_64__)
#define ARCHITECTURE_HERE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE_HERE AUDIT_ARCH_AARCH64
#endif

#define PROBE 0x6d6d7072               /* no option of prctl: answered by the filter alone, so that who asks knows that it is there */
#define BEHIND EHWPOISON
#define ANSWER_S 20
#define OF_A_PROCESS 1                 /* IOPRIO_WHO_PROCESS */
#define OPENS_FOR_WRITING (O_ACCMODE | O_CREAT | O_TRUNC)

/* What becomes of a call; each has its instructions behind the search. */
enum { SHOWN, OPENS_2, OPENS_1, PROBES, EXECUTES, REFUSED, PASSES, KINDS };     /* OPENS_n: shown if its flags, argument n, say so */

struct rule { uint32_t call, kind; };

static const struct rule always[] = {
    { SYS_openat, OPENS_2 }, { SYS_prctl, PROBES },
#ifdef SYS_open
    { SYS_open, OPENS_1 },
    { SYS_creat, SHOWN }, { SYS_unlink, SHOWN }, { SYS_rmdir, SHOWN }, { SYS_rename, SHOWN }, { SYS_link, SHOWN }, { SYS_symlink, SHOWN },
    { SYS_mkdir, SHOWN }, { SYS_mknod, SHOWN }, { SYS_chmod, SHOWN }, { SYS_chown, SHOWN }, { SYS_lchown, SHOWN }, { SYS_utime, SHOWN },
    { SYS_utimes, SHOWN }, { SYS_futimesat, SHOWN }, { SYS_renameat, SHOWN },
#endif
    { SYS_unlinkat, SHOWN }, { SYS_renameat2, SHOWN }, { SYS_linkat, SHOWN }, { SYS_symlinkat, SHOWN }, { SYS_mkdirat, SHOWN },
    { SYS_mknodat, SHOWN }, { SYS_fchmod, SHOWN }, { SYS_fchmodat, SHOWN }, { SYS_fchown, SHOWN }, { SYS_fchownat, SHOWN },
    { SYS_utimensat, SHOWN }, { SYS_truncate, SHOWN }, { SYS_setxattr, SHOWN }, { SYS_lsetxattr, SHOWN }, { SYS_fsetxattr, SHOWN },
    { SYS_removexattr, SHOWN }, { SYS_lremovexattr, SHOWN }, { SYS_fremovexattr, SHOWN }, { SYS_openat2, SHOWN },
    { SYS_open_by_handle_at, OPENS_2 }, { SYS_bind, SHOWN }, { MM_FCHMODAT2, SHOWN }, { MM_SETXATTRAT, SHOWN }, { MM_REMOVEXATTRAT, SHOWN },
    { SYS_landlock_restrict_self, SHOWN }, { SYS_chroot, SHOWN }, { SYS_pivot_root, SHOWN },
    { SYS_unshare, SHOWN }, { SYS_setns, SHOWN }, { SYS_setgroups, SHOWN }, { SYS_setfsuid, SHOWN }, { SYS_setfsgid, SHOWN },
    { SYS_umask, SHOWN }, { SYS_execve, EXECUTES }, { SYS_execveat, SHOWN }, { SYS_seccomp, SHOWN },
};

#define RULES (sizeof always / sizeof *always + 1)
#define LOAD(field) (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what)

/* The kernel tries a new filter with every number that a call may have, so it searches for the span that has the number, and each
 * comparison leaves half of the numbers. */
struct filter {
    struct rule rule[RULES];           /* sorted */
    int rules;
    struct rule span[2 * RULES + 1];   /* from this call on to the next span */
    int spans;
    struct sock_filter code[2 * RULES + 26];
    int length, kind[KINDS];           /* where the instructions of a kind are */
};

static void add_rule(struct filter *f, uint32_t call, uint32_t kind)
{
    int i = f->rules++;
    for (; i > 0 && f->rule[i - 1].call > call; i--)
        f->rule[i] = f->rule[i - 1];
    f->rule[i] = (struct rule){ call, kind };
}

static void filter_step(struct filter *f, struct sock_filter one) { f->code[f->length++] = one; }

/* A comparison that goes on at one of two places; forward only. */
static void filter_compare(struct filter *f, int how, uint32_t with, int yes, int no)
{
    int next = f->length + 1;
    filter_step(f, (struct sock_filter)BPF_JUMP(BPF_JMP | how | BPF_K, with, (uint8_t)(yes - next), (uint8_t)(no - next)));
}

static void add_span(struct filter *f, uint32_t from, uint32_t kind)
{
    f->spans -= f->spans && f->span[f->spans - 1].call == from;
    if (!f->spans || f->span[f->spans - 1].kind != kind)
        f->span[f->spans++] = (struct rule){ from, kind };
}

static void find_spans(struct filter *f)
{
    f->spans = 0;
    add_span(f, 0, PASSES);
    for (int i = 0; i < f->rules; i++) {
        add_span(f, f->rule[i].call, f->rule[i].kind);
        add_span(f, f->rule[i].call + 1, PASSES);
    }
}

/* How many of n spans lie before what is about the middle of their numbers. */
static int about_half(const struct filter *f, int first, int n)
{
    uint32_t end = first + n < f->spans ? f->span[first + n].call : f->span[f->spans - 1].call + 1;
    uint32_t middle = f->span[first].call + (end - f->span[first].call) / 2;
    int half = 1;
    while (half < n - 1 && f->span[first + half].call < middle)
        half++;
    return half;
}

/* Where the search among n spans is; n - 1 comparisons. */
static int search_at(const struct filter *f, int first, int n, int search) { return n > 1 ? search : f->kind[f->span[first].kind]; }

static void filter_search(struct filter *f, int first, int n)
{
    if (n == 1)
        return;
    int half = about_half(f, first, n), next = f->length + 1;
    filter_compare(f, BPF_JGE, f->span[first + half].call, search_at(f, first + half, n - half, next + half - 1), search_at(f, first, half, next));
    filter_search(f, first, half);
    filter_search(f, first + half, n - half);
}

static void filter_code(struct filter *f, uint32_t run)
{
    find_spans(f);
    int at = 3 + f->spans - 1, behind = at + 14;
    f->length = 0;
    f->kind[OPENS_2] = at, f->kind[OPENS_1] = at + 2, f->kind[PROBES] = at + 4, f->kind[EXECUTES] = at + 9;
    f->kind[SHOWN] = at + 11, f->kind[PASSES] = at + 12, f->kind[REFUSED] = at + 13;
    filter_step(f, LOAD(arch));
    filter_compare(f, BPF_JEQ, ARCHITECTURE_HERE, 2, f->kind[PASSES]);
    filter_step(f, LOAD(nr));
    filter_search(f, 0, f->spans);
    for (int n = 2; n > 0; n--) {
        filter_step(f, LOAD(args[n]));
        filter_compare(f, BPF_JSET, OPENS_FOR_WRITING, f->kind[SHOWN], f->kind[PASSES]);
    }
    filter_step(f, LOAD(args[0]));
    filter_compare(f, BPF_JEQ, PR_SET_SECCOMP, f->kind[SHOWN], f->length + 1);
    filter_compare(f, BPF_JEQ, PROBE, f->length + 1, f->kind[PASSES]);
    filter_step(f, LOAD(args[1]));
    filter_compare(f, BPF_JEQ, run, behind, f->kind[PASSES]);
    filter_step(f, LOAD(args[3]));     /* the kernel has no use for it */
    filter_compare(f, BPF_JEQ, MM_LOOKED_AT, f->kind[PASSES], f->kind[SHOWN]);
    filter_step(f, RETURN(SECCOMP_RET_USER_NOTIF));
    filter_step(f, RETURN(SECCOMP_RET_ALLOW));
    filter_step(f, RETURN(SECCOMP_RET_ERRNO | EPERM));
    filter_step(f, RETURN(SECCOMP_RET_ERRNO | BEHIND));
}

static long set_as_it_is(struct filter *f)
{
    filter_code(f, (uint32_t)mm_area->head->run);
    struct sock_fprog program = { (unsigned short)f->length, f->code };
    return mm_set_listener(&program);
}

static int is_behind(const struct mm_area *area)
{
    return sys(SYS_prctl, PROBE, (uint32_t)area->head->run, 0, 0, 0) == -BEHIND;
}

/* Our library is in a program whose calls it would not see: all of them (--strict), or those that it makes by itself. */
int mm_goes_past_us(const struct mm_area *area, int fd)
{
    return area->head->flags & MM_STRICT || mm_calls_by_itself(fd);
}

/* The kernel shows them: then the library stays out of this process. */
int mm_is_shown(const struct mm_area *area)
{
    if (!is_behind(area))
        return 0;
    long fd = sys_openat(AT_FDCWD, "/proc/self/exe", O_RDONLY | O_CLOEXEC, 0);
    int past = mm_goes_past_us(area, (int)fd);
    if (fd >= 0)
        sys_close((int)fd);
    return past;
}

/* no_new_privs stays, so it is tried first whether it leads to the filter: a container's own listener forbids ours. */
static long after_a_trial(struct filter *f)
{
    if (mm_listener_refused_here() < 0 || sys(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -EACCES;
    return set_as_it_is(f);
}

static long set_filter(void)
{
    struct filter f = { .rules = 0 };
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        add_rule(&f, always[i].call, always[i].kind);
    if (mm_area->head->flags & MM_STRICT)
        add_rule(&f, SYS_io_uring_setup, REFUSED);     /* what a ring opens or removes no filter sees */
    long r = set_as_it_is(&f);
    return r == -EACCES ? after_a_trial(&f) : r;  /* root needs not give up set-user-id programs for it */
}

/* -- the proxy ------------------------------------------------------------------------------------------- */

#define CAPS 6                         /* of rights, and NAMESPACE */
#define NAMESPACE 10
#define FIRST_NAMESPACE 0xEFFFFFFDu    /* of users: PROC_USER_INIT_INO; its rights hold in all */

void mm_rights_here(uint32_t rights[11])
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct caps[2] = { { 0 } };
    struct stat st = { .st_ino = 0 };
    sys(SYS_getresuid, rights, rights + 1, rights + 2);
    sys(SYS_getresgid, rights + 3, rights + 4, rights + 5);
    sys(SYS_capget, &head, caps);
    for (int i = 0; i < 2; i++)
        rights[CAPS + i] = caps[i].effective, rights[CAPS + 2 + i] = caps[i].permitted;
    sys(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/user", &st, 0);
    rights[NAMESPACE] = (uint32_t)st.st_ino;
}

/* By the proxy, as the kernel decides it.  Nothing is asked where its rights hold in all namespaces. */
static int may_be_looked_into(void)
{
    const uint32_t *proxy = mm_area->head->proxy_rights;
    uint32_t rights[11] = { 0 };
    int traces = proxy[CAPS] >> CAP_SYS_PTRACE & 1;
    if (traces && proxy[NAMESPACE] == FIRST_NAMESPACE)
        return 1;
    mm_rights_here(rights);
    if (proxy[NAMESPACE] != rights[NAMESPACE])
        return 0;
    return traces || (memcmp(rights, proxy, sizeof rights) == 0 && sys(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
}

/* The proxy's letter box, which has room: one that is stopped reads none.  -errno. */
static long letter_box(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct timespec patience = { ANSWER_S, 0 };
    if (mm_area->folder <= 0)
        return -ENOSYS;
    strcpy(mm_digits(stpcpy(address.sun_path, "/proc/self/fd/"), (uint64_t)mm_area->folder), "/proxy");
    long fd = sys(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fd;
    struct pollfd room = { (int)fd, POLLOUT, 0 };
    long r = sys(SYS_connect, fd, &address, sizeof address);
    if (r == 0)
        r = !may_be_looked_into() ? -EACCES : sys(SYS_ppoll, &room, 1, &patience, 0, 8) == 1 ? 0 : -EAGAIN;
    if (r < 0)
        sys_close((int)fd);
    return r < 0 ? r : fd;
}

/* The same, where there is a place for one more program.  Who has a birth finds a proxy that does not end before it has none
 * (close_box). */
static long find_place(void)
{
    uint32_t programs = __atomic_load_n(&mm_area->head->proxy_places, __ATOMIC_SEQ_CST);
    return !(programs & MM_PROXY_OPEN) ? -ECONNREFUSED : (programs & ~MM_PROXY_OPEN) >= MM_PROXY_PROGRAMS ? -EUSERS : letter_box();
}

/* A new process, no child of anybody here, that is nothing but the proxy.  In it: what it must not inherit is closed. */
static void become_proxy(int ready)
{
    struct mm_exec image = { 0 };
    const char *python = mm_variable("METAMORI_PYTHON"), *program_file = python ? python : "/proc/self/exe";
    char *argv[] = { "metamori-proxy", (char *)mm_area->store, NULL };
    char self[64];
    long n = sys_readlink("/proc/self/exe", self, sizeof self);
    (void)n;
    mm_environment_for(&image, MM_PROXY_VARIABLE "0");
    if (!image.envp)
        return;
    if (ready != MM_PROXY_READY)
        sys(SYS_dup3, ready, MM_PROXY_READY, 0);
    else
        sys(SYS_fcntl, ready, F_SETFD, 0);
    for (int fd = 0; fd < 3; fd++) {
        long null = sys_openat(AT_FDCWD, "/dev/null", O_RDWR, 0);
        if (null >= 0 && null != fd) {
            sys(SYS_dup3, null, fd, 0);
            sys_close((int)null);
        }
    }
    sys(SYS_close_range, MM_PROXY_READY + 1, ~0u, 0);
    sys(SYS_chdir, "/");
    sys(SYS_execve, program_file, argv, image.envp);
    if (python)
        sys(SYS_execve, "/proc/self/exe", argv, image.envp);
}

/* It serves the whole run, and would be under the limits of the program that comes first.  0: it would stay there. */
static int has_limits_of_run(void)
{
    static const int of[] = { RLIMIT_FSIZE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_CPU, RLIMIT_NPROC, RLIMIT_NOFILE };
    int run = mm_run_is_watched(mm_area) ? (int)mm_area->head->supervisor : 0;
    char processors[128], scheduling[48];      /* struct sched_attr */
    struct rlimit limit;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        if (run && sys(SYS_prlimit64, run, of[i], 0, &limit) < 0)
            run = 0;                   /* the kernel does not say: as without it */
        if (!run && sys(SYS_prlimit64, 0, of[i], 0, &limit) < 0)
            return 0;
        if (!run)
            limit.rlim_cur = limit.rlim_max;
        if (sys(SYS_prlimit64, 0, of[i], &limit, 0) < 0 || (of[i] == RLIMIT_NOFILE && limit.rlim_max < MM_PROXY_FILES))
            return 0;
    }
    long bytes = run ? sys(SYS_sched_getaffinity, run, sizeof processors, processors) : 0;
    long disk = run ? sys(SYS_ioprio_get, OF_A_PROCESS, run) : -1;
    if (bytes > 0)
        sys(SYS_sched_setaffinity, 0, bytes, processors);
    if (disk >= 0)
        sys(SYS_ioprio_set, OF_A_PROCESS, 0, disk);
    if (run && sys(SYS_sched_getattr, run, scheduling, sizeof scheduling, 0) == 0)
        sys(SYS_sched_setattr, 0, scheduling, 0);
    return 1;
}

/* The orphan would be a child of a program that may wait for all of its children.  1: `metamori run` has been asked. */
static int asks_run(void)
{
    struct mm_header *h = mm_area->head;
    if (!h->reaps || h->flags & MM_JOB || !mm_run_is_watched(mm_area))
        return 0;
    __atomic_store_n(&h->proxy_wanted, 1, __ATOMIC_SEQ_CST);
    return sys(SYS_kill, h->supervisor, SIGCHLD) == 0;
}

/* What it says when it can be reached, or that there is another; 0: it has not begun. */
static char start_proxy(void)
{
    int ready[2];
    char answer = 0;
    if (sys(SYS_pipe2, ready, O_CLOEXEC) < 0)
        return 0;
    long pid = mm_quiet_fork();
    if (pid == 0) {
        sys(SYS_setsid);
        if (has_limits_of_run() && mm_quiet_fork() == 0)
            become_proxy(ready[1]);
        sys(SYS_exit_group, 0);
    }
    sys_close(ready[1]);
    if (pid > 0) {
        struct pollfd end = { ready[0], POLLIN, 0 };
        sys(SYS_wait4, pid, 0, __WCLONE, 0);
        struct timespec patience = { ANSWER_S, 0 };
        if (sys(SYS_ppoll, &end, 1, &patience, 0, 8) > 0)
            sys(SYS_read, ready[0], &answer, 1);
    }
    sys_close(ready[0]);
    return answer;
}

/* Where there is none, one is started. */
static long proxy(void)
{
    char said;
    long box = find_place();
    for (int i = 0; i < ANSWER_S * 500 && (box == -ECONNREFUSED || box == -ENOENT); i++) {
        if (mm_area->head->calls_hidden)
            return -ENOSYS;
        if (i % 100 || (i % 500 && mm_area->head->reaps) || (i < ANSWER_S * 100 && asks_run()))
            sys_pause_us(2000);
        else if (!mm_may_read_others())        /* one that is there has read our memory */
            return -ENOSYS;
        else if ((said = start_proxy()) != MM_PROXY_GO && said != MM_PROXY_NO) {
            return -ENOSYS;            /* this once: the next may begin */
        }
        box = find_place();
    }
    return box;
}

/* Nobody waits until it is read: it lies in the letter box as long as the proxy, its standby or `metamori run` lives.  So does
 * the birth, by which the run is not over before the proxy is in it.  One that finds no room any more waits for that. */
static long post(int box, int listener, int birth)
{
    int fds[2] = { listener, birth };
    char control[CMSG_SPACE(sizeof fds)] = { 0 }, text = MM_PROXY_LISTENER;
    struct iovec v = { &text, 1 };
    struct msghdr message = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    *c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof fds), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
    memcpy(CMSG_DATA(c), fds, sizeof fds);
    long r = sys(SYS_sendmsg, box, &message, MSG_NOSIGNAL);
    while (r == -ETOOMANYREFS) {        /* as many as this user may have descriptors lie in such boxes */
        sys_pause_us(2000);
        r = sys(SYS_sendmsg, box, &message, MSG_NOSIGNAL);
    }
    return r;
}

struct status { long tracer, filters; };

static long status_number(const char *text, const char *field)
{
    const char *at = strstr(text, field);
    return at ? strtol(at + strlen(field), NULL, 10) : -1;
}

/* As /proc says it; -1: it does not. */
static struct status status_in(const char *path)
{
    char text[4096];                   /* groups stand before, which may be hundreds */
    long fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), n = fd < 0 ? fd : sys_pread((int)fd, text, sizeof text - 1, 0);
    if (fd >= 0)
        sys_close((int)fd);
    text[n > 0 ? n : 0] = 0;
    return (struct status){ status_number(text, "\nTracerPid:\t"), status_number(text, "\nSeccomp_filters:\t") };
}

/* Who traces this thread may have its calls handed over by a filter: those that ours shows would not be, and mean what it makes of them.
 * Filters that the tracer has too are those of a container or a service. */
static int may_be_handed_over(void)
{
    char path[40];
    if (sys(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) != SECCOMP_MODE_FILTER)
        return 0;
    struct status own = status_in("/proc/thread-self/status");
    if (own.tracer <= 0)
        return 0;
    strcpy(mm_digits(stpcpy(path, "/proc/"), (uint64_t)own.tracer), "/status");
    return own.filters < 0 || own.filters != status_in(path).filters;
}

/* From here on the proxy makes the calls of this thread that matter, and of what it executes.  0, or -errno: nothing has changed. */
long mm_follow_calls(void)
{
    if (is_behind(mm_area))
        return 0;
    const char *how = mm_variable("METAMORI_STATIC");
    if (mm_area->head->flags & MM_MEMORY || mm_elsewhere || mm_area->head->calls_hidden || (how && strcmp(how, "untracked") == 0)
        || may_be_handed_over())
        return -ENOSYS;
    uint64_t mask = sys_mask_all();
    int birth = mm_birth_begin(mm_area);
    long box = birth < 0 ? -EMFILE : proxy();
    MM_STOP("filter.dialled");        /* not later: this call would be shown, and nobody is there yet */
    long listener = box < 0 ? box : set_filter();
    if (listener >= 0 && post((int)box, (int)listener, birth) < 0) {
        mm_say("the process that tracks static programs was killed: %s cannot go on", program_invocation_name);
        sys(SYS_exit_group, 127);
    }
    if (box >= 0)
        sys_close((int)box);
    if (birth >= 0)
        mm_close_spare(birth);
    if (listener < 0) {
        sys_mask_back(mask);
        return listener;
    }
    sys_close((int)listener);
    sys_mask_back(mask);
    return 0;
}
