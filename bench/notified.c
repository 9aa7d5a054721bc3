/* Linked statically, so that the preload library is not in it: its calls on names are notified to a proxy.
 *
 * notified COUNT         microseconds for each open for writing and close; chmod; mkdir or rmdir; and for what no notified call
 *                        can do without: a byte to another process and one back
 * notified time COMMAND  milliseconds of the command, and of CPU time
 * notified starts COUNT PROGRAM   milliseconds for each start of a program, after a first one; linked dynamically
 * notified limit COUNT   the same numbers natively, but the calls are notified to a process that opens the file and gives its descriptor
 *                        to the program, and of the others only says that the kernel makes them;
 *                        then milliseconds for each of COUNT / 5 programs that are started with such a filter, and handed over
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static double seconds(struct timeval t) { return t.tv_sec + t.tv_usec / 1e6; }

static int timed(char **command)
{
    int status = -1;
    struct rusage used;
    double start = now();
    pid_t child = fork();
    if (child == 0) {
        execvp(command[0], command);
        _exit(127);
    }
    wait4(child, &status, 0, &used);
    printf("%.3f %.3f\n", (now() - start) / 1000, (seconds(used.ru_utime) + seconds(used.ru_stime)) * 1000);
    return status != 0;
}

static int starts(int count, char *program)
{
    double begun = 0;
    for (int i = 0; i <= count; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            execl(program, program, "0", (char *)NULL);
            _exit(127);
        }
        if (waitpid(child, &status, 0) != child || status)
            return 1;
        begun = i ? begun : now();
    }
    printf("%.3f\n", (now() - begun) / 1000 / count);
    return 0;
}

static double round_trip(int count)
{
    int to[2], back[2];
    char byte = 0;
    if (pipe(to) || pipe(back))
        return 0;
    if (fork() == 0) {
        for (int i = 0; i < count; i++)
            if (read(to[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
                break;
        _exit(0);
    }
    double start = now();
    for (int i = 0; i < count; i++)
        if (write(to[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
            break;
    double took = now() - start;
    wait(NULL);
    return took / count;
}

/* -- the limit ------------------------------------------------------------------------------------- */

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)    /* Linux 6.6 */
#endif
#define SYNC_WAKE_UP 1
#define SHOWN(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)

static int line[2];                    /* the program's end, and that of who answers */

static void send_or_take(int at, int *fd, int sends)
{
    char text = 'l';
    union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr head; } control = { { 0 } };
    struct iovec v = { &text, 1 };
    struct msghdr message = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof *fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
    if (sends)
        memcpy(CMSG_DATA(&control.head), fd, sizeof *fd);
    if ((sends ? sendmsg(at, &message, 0) : recvmsg(at, &message, 0)) != 1)
        _exit(1);
    if (!sends)
        memcpy(fd, CMSG_DATA(&control.head), sizeof *fd);
}

/* As who must open what the program will have (a path that the kernel reads again may be another by then), and who leaves no answer
 * without its descriptor when it is killed in between: two steps. */
static void open_there(int listener, const struct seccomp_notif *notice, struct seccomp_notif_resp *response)
{
    int at = notice->data.nr == SYS_openat;
    const __u64 *a = notice->data.args + at;
    char path[256];
    struct iovec here = { path, sizeof path }, there = { (void *)(uintptr_t)a[0], sizeof path };
    if (process_vm_readv(notice->pid, &here, 1, &there, 1, 0) < 1)
        _exit(1);
    int fd = open(path, (int)a[1] | O_CLOEXEC, (mode_t)a[2]);
    struct seccomp_notif_addfd to = { .id = notice->id, .srcfd = (uint32_t)fd, .newfd_flags = (uint32_t)a[1] & O_CLOEXEC };
    response->val = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &to);
    response->flags = 0;
    close(fd);
}

static int opens(const struct seccomp_data *call)
{
#ifdef SYS_open
    if (call->nr == SYS_open)
        return (call->args[1] & O_ACCMODE) != O_RDONLY;
#endif
    return call->nr == SYS_openat && (call->args[2] & O_ACCMODE) != O_RDONLY;
}

/* One listener after the other, each as long as its programs live: RECV then fails. */
static void answer_all(void)
{
    struct seccomp_notif notice;
    uint64_t flags = SYNC_WAKE_UP;
    int listener;
    close(line[0]);
    for (;;) {
        send_or_take(line[1], &listener, 0);
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags);
        if (write(line[1], "t", 1) != 1)
            _exit(1);
        while (memset(&notice, 0, sizeof notice), ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &notice) == 0) {
            struct seccomp_notif_resp response = { .id = notice.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };
            if (opens(&notice.data))
                open_there(listener, &notice, &response);
            ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
        }
        close(listener);
    }
}

/* 0: the calls of this process, and of what it starts, are notified. */
static int be_notified(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef SYS_open
        SHOWN(SYS_open), SHOWN(SYS_chmod), SHOWN(SYS_mkdir), SHOWN(SYS_rmdir),
#endif
        SHOWN(SYS_openat), SHOWN(SYS_fchmodat), SHOWN(SYS_mkdirat), SHOWN(SYS_unlinkat), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { sizeof code / sizeof *code, code };
    char taken;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return 1;
    int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
    if (listener < 0)
        return 1;
    send_or_take(line[0], &listener, 1);
    close(listener);
    return read(line[0], &taken, 1) != 1;
}

static double start_programs(int count)
{
    double start = now();
    for (int i = 0; i < count; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            if (be_notified() == 0)
                execl("/proc/self/exe", "notified", "0", (char *)NULL);
            _exit(1);
        }
        if (waitpid(child, &status, 0) != child || status)
            _exit(1);
    }
    return (now() - start) / 1000 / count;
}

static double begin_limit(int count)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line))
        _exit(1);
    pid_t other = fork();
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        answer_all();
    }
    double each = start_programs(count > 5 ? count / 5 : 1);
    if (be_notified())
        _exit(1);
    return each;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "time") == 0)
        return timed(argv + 2);
    if (argc > 3 && strcmp(argv[1], "starts") == 0)
        return starts(atoi(argv[2]), argv[3]);
    int limit = argc > 2 && strcmp(argv[1], "limit") == 0, count = argc > 1 ? atoi(argv[1 + limit]) : 0, bad = 0;
    if (!count)
        return 0;
    double each = limit ? begin_limit(count) : 0;
    int fd = open("f", O_WRONLY | O_CREAT, 0644);
    bad |= fd < 0 || write(fd, "x", 1) != 1 || close(fd);
    double start = now();
    for (int i = 0; i < count; i++) {
        fd = open("f", O_WRONLY | O_CREAT, 0644);
        bad |= fd < 0 || close(fd);
    }
    double opened = now();
    for (int i = 0; i < count; i++)
        bad |= chmod("f", 0600 + (i & 1)) != 0;
    double changed = now();
    for (int i = 0; i < count / 10; i++)
        bad |= mkdir("d", 0755) != 0 || rmdir("d") != 0;
    double made = now();
    printf("%.2f %.2f %.2f %.2f", (opened - start) / count, (changed - opened) / count, (made - changed) / (count / 10) / 2,
           round_trip(count));
    printf(limit ? " %.3f\n" : "\n", each);
    return bad;
}
