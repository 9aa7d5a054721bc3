/* tracer - runs a command, stops all of its processes' system calls on files below some folders, and asks what is to
 * happen.
 *
 *     tracer ASK ANSWER FOLDER[:FOLDER...] PROGRAM SET COMMAND [ARG...]
 *
 * ASK and ANSWER are descriptors. Before each call that counts a line goes to ASK:
 *     C <pid> <call> <length> <path>\t<other path>
 * and one line is read from ANSWER:
 *     g       let it happen            r          let it happen, and report:  R <pid> <result>
 *     f <e>   fail with this errno     s          do half of its bytes
 *     k       kill all processes       p          kill the one that calls
 *     x       let it happen, then kill all before anybody runs on: a kill that came while the kernel was at it
 *     y       the same, and kill the one that called
 * At the end:  E <wait status of the command>.
 * PROGRAM: only calls of processes that execute a file of this name count; "-": all do.  SET: "change", the calls that
 * change files or make them durable, or "any", those that look too.  A seccomp filter sends only these here, so that
 * everything else runs at its own speed.  Calls: x86-64.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 4096   /* threads at one time */
/* where a call names a file: d a descriptor, p a path from the folder, a a path after a folder's descriptor,
 * m the descriptor of a mapping; n the argument that is its length, -1 none */
static const struct call { int number; const char *name, *files; int length, changes; } calls[] = {
    {SYS_openat, "openat", "a0", -1, 2}, {SYS_open, "open", "p0", -1, 2}, {SYS_creat, "creat", "p0", -1, 1},
    {SYS_write, "write", "d0", 2, 1}, {SYS_pwrite64, "pwrite", "d0", 2, 1}, {SYS_writev, "writev", "d0", -1, 1},
    {SYS_pwritev, "pwritev", "d0", -1, 1}, {SYS_pwritev2, "pwritev2", "d0", -1, 1},
    {SYS_copy_file_range, "copy_file_range", "d2", 4, 1}, {SYS_sendfile, "sendfile", "d0", 3, 1},
    {SYS_ftruncate, "ftruncate", "d0", -1, 1}, {SYS_truncate, "truncate", "p0", -1, 1},
    {SYS_fallocate, "fallocate", "d0", -1, 1}, {SYS_fsync, "fsync", "d0", -1, 1}, {SYS_fdatasync, "fdatasync", "d0", -1, 1},
    {SYS_syncfs, "syncfs", "d0", -1, 1},
    {SYS_rename, "rename", "p0p1", -1, 1}, {SYS_renameat, "renameat", "a0a2", -1, 1}, {SYS_renameat2, "renameat2", "a0a2", -1, 1},
    {SYS_link, "link", "p0p1", -1, 1}, {SYS_linkat, "linkat", "a0a2", -1, 1}, {SYS_unlink, "unlink", "p0", -1, 1},
    {SYS_unlinkat, "unlinkat", "a0", -1, 1}, {SYS_mkdir, "mkdir", "p0", -1, 1}, {SYS_mkdirat, "mkdirat", "a0", -1, 1},
    {SYS_rmdir, "rmdir", "p0", -1, 1}, {SYS_symlink, "symlink", "p1", -1, 1}, {SYS_symlinkat, "symlinkat", "a1", -1, 1},
    {SYS_chmod, "chmod", "p0", -1, 1}, {SYS_fchmod, "fchmod", "d0", -1, 1}, {SYS_fchmodat, "fchmodat", "a0", -1, 1},
    {SYS_fchown, "fchown", "d0", -1, 1}, {SYS_fchownat, "fchownat", "a0", -1, 1}, {SYS_lchown, "lchown", "p0", -1, 1},
    {SYS_utimensat, "utimensat", "a0", -1, 1}, {SYS_ioctl, "ioctl", "d0", -1, 1},
    {SYS_read, "read", "d0", 2, 0}, {SYS_pread64, "pread", "d0", 2, 0}, {SYS_mmap, "mmap", "m4", -1, 0},
    {SYS_lseek, "lseek", "d0", -1, 0}, {SYS_fstat, "fstat", "d0", -1, 0}, {SYS_newfstatat, "newfstatat", "a0", -1, 0},
    {SYS_statx, "statx", "a0", -1, 0}, {SYS_dup, "dup", "d0", -1, 0}, {SYS_dup3, "dup3", "d0", -1, 0},
    {SYS_fcntl, "fcntl", "d0", -1, 0}, {SYS_getdents64, "getdents64", "d0", -1, 0},
};
#define CALLS ((int)(sizeof calls / sizeof *calls))

static FILE *ask, *answer;
static const char *folders, *program;
static int any;
static struct { pid_t pid; int report; } known[MOST];

static void die(const char *what)
{
    perror(what);
    exit(125);
}

static void install_filter(void)
{
    struct sock_filter code[CALLS + 4];
    int n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < CALLS; i++)
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number,
                                                 calls[i].changes || any ? CALLS - i : 0, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    struct sock_fprog filter = {n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        die("seccomp");
}

static void read_text(pid_t pid, unsigned long at, char *out, size_t room)
{
    size_t done = 0;
    while (done + 1 < room) {                 /* never across a page that may not be there */
        size_t piece = 4096 - (at + done) % 4096;
        if (piece > room - 1 - done)
            piece = room - 1 - done;
        struct iovec here = {out + done, piece}, there = {(void *)(at + done), piece};
        ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (got <= 0)
            break;
        if (memchr(out + done, 0, got))
            return;
        done += got;
    }
    out[done] = 0;
}

static void of_descriptor(pid_t pid, int fd, char *out, size_t room)
{
    char link[64];
    if (fd == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/%d/cwd", pid);
    else
        snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, fd);
    ssize_t n = readlink(link, out, room - 1);
    out[n < 0 ? 0 : n] = 0;
}

static void of_path(pid_t pid, int dir, unsigned long at, char *out, size_t room)
{
    char text[PATH_MAX], base[PATH_MAX];
    read_text(pid, at, text, sizeof text);
    if (text[0] == '/')
        snprintf(out, room, "%s", text);
    else {
        of_descriptor(pid, dir, base, sizeof base);
        snprintf(out, room, "%s/%s", base, text);
    }
}

static int counts_for(pid_t pid)
{
    char link[64], exe[PATH_MAX];
    if (!strcmp(program, "-"))
        return 1;
    snprintf(link, sizeof link, "/proc/%d/exe", pid);
    ssize_t n = readlink(link, exe, sizeof exe - 1);
    exe[n < 0 ? 0 : n] = 0;
    char *slash = strrchr(exe, '/');
    return slash && !strcmp(slash + 1, program);
}

static int *report_of(pid_t pid)
{
    int empty = -1;
    for (int i = 0; i < MOST; i++) {
        if (known[i].pid == pid)
            return &known[i].report;
        if (!known[i].pid && empty < 0)
            empty = i;
    }
    known[empty].pid = pid;
    known[empty].report = 0;
    return &known[empty].report;
}

static void forget(pid_t pid)
{
    for (int i = 0; i < MOST; i++)
        if (known[i].pid == pid)
            known[i].pid = 0;
}

static void kill_all(void)
{
    for (int i = 0; i < MOST; i++)
        if (known[i].pid)
            kill(known[i].pid, SIGKILL);
}

static unsigned long long *argument(struct user_regs_struct *r, int n)
{
    unsigned long long *all[] = {&r->rdi, &r->rsi, &r->rdx, &r->r10, &r->r8, &r->r9};
    return all[n];
}

static int is_below(const char *path)
{
    for (const char *folder = folders; *folder;) {
        size_t length = strcspn(folder, ":");
        if (!strncmp(path, folder, length) && (path[length] == '/' || !path[length]))
            return 1;
        folder += length + (folder[length] == ':');
    }
    return 0;
}

/* The files that a call is about; whether one of them is below a folder, and the call is of the set. */
static const struct call *look(pid_t pid, struct user_regs_struct *r, char paths[2][PATH_MAX])
{
    const struct call *c = calls;
    while (c < calls + CALLS && c->number != (int)r->orig_rax)
        c++;
    if (c == calls + CALLS)
        return NULL;
    if (!any && c->changes == 2) {
        int flags = (int)*argument(r, c->number == SYS_openat ? 2 : 1);
        if (!(flags & (O_CREAT | O_TRUNC)))
            return NULL;
    }
    int below = 0, n = 0;
    paths[0][0] = paths[1][0] = 0;
    for (const char *f = c->files; *f; f += 2, n++) {
        int which = f[1] - '0';
        if (f[0] == 'a')
            of_path(pid, (int)*argument(r, which), *argument(r, which + 1), paths[n], PATH_MAX);
        else if (f[0] == 'p')
            of_path(pid, AT_FDCWD, *argument(r, which), paths[n], PATH_MAX);
        else if (f[0] == 'd' || (int)*argument(r, which) >= 0)
            of_descriptor(pid, (int)*argument(r, which), paths[n], PATH_MAX);
        below |= is_below(paths[n]);
    }
    return below && counts_for(pid) ? c : NULL;
}

/* A call that counts: the answer is carried out. Returns how the process goes on. */
static int stopped(pid_t pid)
{
    struct user_regs_struct r;
    static char paths[2][PATH_MAX];
    char line[64] = "";
    if (ptrace(PTRACE_GETREGS, pid, 0, &r) < 0)
        return PTRACE_CONT;
    const struct call *c = look(pid, &r, paths);
    if (!c)
        return PTRACE_CONT;
    fprintf(ask, "C %d %s %llu %s\t%s\n", pid, c->name, c->length < 0 ? 0 : *argument(&r, c->length), paths[0], paths[1]);
    fflush(ask);
    if (!fgets(line, sizeof line, answer) || line[0] == 'k') {
        kill_all();
    } else if (line[0] == 'p') {
        kill(pid, SIGKILL);
    } else if (line[0] == 'f') {
        r.orig_rax = -1;
        r.rax = -atoi(line + 2);
        ptrace(PTRACE_SETREGS, pid, 0, &r);
    } else if (line[0] == 's' && c->length >= 0 && *argument(&r, c->length) > 1) {
        *argument(&r, c->length) /= 2;
        ptrace(PTRACE_SETREGS, pid, 0, &r);
    } else if (strchr("rxy", line[0])) {
        *report_of(pid) = line[0];
        return PTRACE_SYSCALL;
    }
    return PTRACE_CONT;
}

static int after_call(pid_t pid)
{
    struct user_regs_struct r;
    struct __ptrace_syscall_info info = { .op = PTRACE_SYSCALL_INFO_NONE };
    int *report = report_of(pid);
    ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info);
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY)  /* of kernels that ask a filter first */
        return PTRACE_SYSCALL;
    if (*report == 'x') {
        kill_all();
    } else if (*report == 'y') {
        kill(pid, SIGKILL);
    } else if (*report == 'r' && ptrace(PTRACE_GETREGS, pid, 0, &r) == 0) {
        fprintf(ask, "R %d %lld\n", pid, (long long)r.rax);
        fflush(ask);
    }
    *report = 0;
    return PTRACE_CONT;
}

static int watch(pid_t first)
{
    int result = 0;
    for (int status;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0) {
            if (errno == EINTR)
                continue;
            return result;                    /* nobody is left */
        }
        if (!WIFSTOPPED(status)) {
            if (pid == first)
                result = status;
            forget(pid);
            continue;
        }
        int event = status >> 16, signal = WSTOPSIG(status), how = PTRACE_CONT;
        report_of(pid);
        if (event == PTRACE_EVENT_SECCOMP)
            how = stopped(pid);
        else if (signal == (SIGTRAP | 0x80))
            how = after_call(pid);
        else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP)
            how = PTRACE_LISTEN;              /* stopped by a signal: it stays so until SIGCONT */
        ptrace(how, pid, 0, event || signal == (SIGTRAP | 0x80) ? 0 : signal);
    }
}

int main(int count, char **word)
{
    int gate[2];
    if (count < 7 || pipe(gate) < 0)
        return 125;
    ask = fdopen(atoi(word[1]), "w");
    answer = fdopen(atoi(word[2]), "r");
    folders = word[3], program = word[4], any = !strcmp(word[5], "any");
    pid_t child = fork();
    if (child == 0) {
        char go;
        close(gate[1]);
        close(atoi(word[1]));
        close(atoi(word[2]));
        if (read(gate[0], &go, 1) != 1)
            _exit(125);
        close(gate[0]);
        install_filter();
        execvp(word[6], word + 6);
        die(word[6]);
    }
    close(gate[0]);
    signal(SIGPIPE, SIG_IGN);
    long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE
                 | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD;
    if (ptrace(PTRACE_SEIZE, child, 0, options) < 0)
        die("ptrace");
    report_of(child);
    if (write(gate[1], "g", 1) != 1)
        return 125;
    close(gate[1]);
    fprintf(ask, "E %d\n", watch(child));
    fflush(ask);
    return 0;
}
