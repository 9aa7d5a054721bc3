/* family.c - a program of steps, each carried out by one of several processes; tests/model/tree_programs.py says what comes.
 *
 *   family FILE      lines of: PROCESS 1 (or 0: others go on meanwhile) OPERATION NUMBERS...; process 0 is the first, and drives the others by pipes
 *
 * Each process writes what it sees into log.N.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <metamori.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { dprintf(2, "%d at step %d: line %d: %s: %s\n", me, at, __LINE__, #x, strerror(errno)); _exit(99); } } while (0)
enum { STEPS = 4096, PROCESSES = 16, SLOTS = 32, REGIONS = 12, MOST = 1 << 20 };

struct step { int process, waits; char what[16]; long n[5]; };
static struct step step[STEPS];
static int steps, at, me, below, log_fd, command[PROCESSES][2], answer[2], life[2], done[PROCESSES];
static int slot[SLOTS];
static struct { unsigned char *start; size_t size; } region[REGIONS];
static volatile pid_t *number;             /* of each process: what all see */
static pid_t child_pid[PROCESSES];
static volatile sig_atomic_t came;
static unsigned char buffer[MOST];

static uint32_t crc(const unsigned char *p, size_t n)
{
    uint32_t c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (0xedb88320u & -(c & 1));
    }
    return ~c;
}

static void make(unsigned char *to, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    char line[256];
    int n = snprintf(line, sizeof line, "%d ", at);
    va_list list;
    va_start(list, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, list);
    va_end(list);
    line[n++] = '\n';
    MUST(write(log_fd, line, (size_t)n) == n);
}

static void on_signal(int number) { (void)number; came++; }

static void open_log(void)
{
    char name[16];
    snprintf(name, sizeof name, "%slog.%d", below ? "../" : "", me);
    MUST((log_fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644)) >= 0);
}

/* -- what a process sees ---------------------------------------------------------------------------------------------- */

static int is_of_inet(int fd)
{
    int domain = 0;
    socklen_t size = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_INET;
}

static void see_descriptor(int i)
{
    struct stat st;
    int fd = slot[i], waiting = 0;
    if (fcntl(fd, F_GETFD) < 0) {
        say("slot %d: %s", i, strerror(errno));
        return;
    }
    int flags = fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK), closes = fcntl(fd, F_GETFD);
    MUST(fstat(fd, &st) == 0);
    if (S_ISREG(st.st_mode)) {
        MUST((size_t)st.st_size <= MOST && pread(fd, buffer, MOST, 0) == st.st_size);
        say("slot %d: %o %d file %ld at %ld %08x", i, flags, closes, (long)st.st_size, (long)lseek(fd, 0, SEEK_CUR),
            crc(buffer, (size_t)st.st_size));
    } else if ((S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) && !is_of_inet(fd)) {    /* what has arrived there is the kernel's affair */
        int r = ioctl(fd, FIONREAD, &waiting);
        say("slot %d: %o %d holds %d", i, flags, closes, r < 0 ? -errno : waiting);
    } else {
        say("slot %d: %o %d", i, flags, closes);
    }
}

/* The index of a process, 0 for one that is none of ours: also for 0, which is a leader in another namespace. */
static int who(pid_t pid)
{
    for (int i = 1; i < PROCESSES; i++)
        if (pid && number[i] == pid)
            return i;
    return 0;
}

static void see(void)
{
    for (int i = 0; i < SLOTS; i++)
        if (slot[i] >= 0)
            see_descriptor(i);
    for (int i = 0; i < REGIONS; i++)
        if (region[i].start)
            say("region %d: %zu %08x", i, region[i].size, crc(region[i].start, region[i].size));
    for (int i = 0; i < PROCESSES; i++)
        if (child_pid[i]) {
            siginfo_t info = { .si_pid = 0 };
            int r = waitid(P_PID, (id_t)child_pid[i], &info, WEXITED | WNOHANG | WNOWAIT);
            say("child %d: %d %d %d", i, r, info.si_pid ? info.si_code : 0, info.si_pid ? info.si_status : 0);
        }
    sigset_t pending, blocked;
    char folder[4096];
    sigpending(&pending), sigprocmask(SIG_BLOCK, NULL, &blocked);
    MUST(getcwd(folder, sizeof folder));
    mode_t mask = umask(0);
    umask(mask);
    say("signals %d %d %d, mask %o, in %s, group %d, session %d", (int)came, sigismember(&blocked, SIGUSR1),
        sigismember(&pending, SIGUSR1), mask, strrchr(folder, '/') + 1, who(getpgrp()), who(getsid(0)));
}

/* -- operations -------------------------------------------------------------------------------------------------------- */

static void serve(void);

static void born(int name)
{
    close(log_fd);
    me = name;
    memset(child_pid, 0, sizeof child_pid);
    number[me] = getpid();
    open_log();
    serve();
}

static void get(int fd, size_t n)
{
    size_t had = 0;
    while (had < n) {
        ssize_t r = read(fd, buffer + had, n - had);
        MUST(r >= 0);
        if (r == 0)
            break;
        had += (size_t)r;
    }
    say("got %zu %08x", had, crc(buffer, had));
}

static void pair_of_tcp(int *two)
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof here;
    int listens = socket(AF_INET, SOCK_STREAM, 0);
    MUST(listens >= 0 && bind(listens, (struct sockaddr *)&here, sizeof here) == 0 && listen(listens, 1) == 0);
    MUST(getsockname(listens, (struct sockaddr *)&here, &size) == 0);
    MUST((two[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && connect(two[0], (struct sockaddr *)&here, sizeof here) == 0);
    MUST((two[1] = accept(listens, NULL, NULL)) >= 0);
    close(listens);
}

static void two_ends(const struct step *s, int (*make_them)(int, int *))
{
    int two[2];
    MUST(make_them((int)s->n[2], two) == 0);
    slot[s->n[0]] = two[0], slot[s->n[1]] = two[1];
}
static int a_pipe(int flags, int *two) { return pipe2(two, flags ? O_CLOEXEC : 0); }
static int a_pair(int type, int *two) { return socketpair(AF_UNIX, type, 0, two); }
static int a_connection(int unused, int *two) { (void)unused; pair_of_tcp(two); return 0; }

static void map(const struct step *s, int flags, int fd)
{
    size_t size = (size_t)s->n[1] * 4096;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    MUST(p != MAP_FAILED);
    region[s->n[0]].start = p, region[s->n[0]].size = size;
}

static void descriptor_from(int channel, int to)
{
    char c, control[CMSG_SPACE(sizeof(int))];
    struct iovec v = { &c, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    MUST(recvmsg(channel, &m, 0) == 1 && CMSG_FIRSTHDR(&m));
    memcpy(&slot[to], CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
}

static void descriptor_to(int channel, int fd)
{
    char c = 'd', control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec v = { &c, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &fd, sizeof(int));
    MUST(sendmsg(channel, &m, 0) == 1);
}

static void process_step(const struct step *s)
{
    const long *n = s->n;
    siginfo_t info = { .si_pid = 0 };
    int status;
#define IS(name) (strcmp(s->what, name) == 0)
    if (IS("fork")) {
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0)
            born((int)n[0]);
        child_pid[n[0]] = pid;
    } else if (IS("exit")) {
        _exit((int)n[0]);
    } else if (IS("kill")) {               /* it stays until it is waited for */
        MUST(kill(child_pid[n[0]], (int)n[1]) == 0);
        MUST(waitid(P_PID, (id_t)child_pid[n[0]], &info, WEXITED | WNOWAIT) == 0);
    } else if (IS("ended")) {
        MUST(waitid(P_PID, (id_t)child_pid[n[0]], &info, WEXITED | WNOWAIT) == 0);
    } else if (IS("wait")) {
        MUST(waitpid(child_pid[n[0]], &status, 0) == child_pid[n[0]]);
        say("waited %d %04x", (int)n[0], status);
        child_pid[n[0]] = 0;
    } else if (IS("signal")) {
        MUST(kill(child_pid[n[0]], SIGUSR1) == 0);
    } else if (IS("block")) {
        sigset_t set;
        sigemptyset(&set), sigaddset(&set, SIGUSR1);
        sigprocmask(n[0] ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
    } else if (IS("group")) {
        MUST(setpgid(0, 0) == 0);
    } else if (IS("session")) {
        MUST(setsid() == getpid());
    } else if (IS("umask")) {
        umask((mode_t)n[0]);
    } else if (IS("folder")) {
        below = (int)n[0];
        MUST(chdir(below ? "below" : "..") == 0);
    } else {
        errno = EINVAL;
        MUST(!"an operation");
    }
}

static int memory_step(const struct step *s)
{
    const long *n = s->n;
    if (IS("shared"))
        map(s, MAP_SHARED | MAP_ANONYMOUS, -1);
    else if (IS("private"))
        map(s, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    else if (IS("map"))
        map(s, MAP_SHARED, slot[n[2]]);
    else if (IS("unmap")) {
        MUST(munmap(region[n[0]].start, region[n[0]].size) == 0);
        region[n[0]].start = NULL;
    } else if (IS("store"))
        make(region[n[0]].start + n[1], (size_t)n[2], (uint32_t)n[3]);
    else
        return 0;
    return 1;
}

static int descriptor_step(const struct step *s)
{
    const long *n = s->n;
    char name[32];
    if (IS("open")) {
        snprintf(name, sizeof name, "%sf%ld", below ? "../" : "", n[1]);
        slot[n[0]] = open(name, O_RDWR | O_CREAT | (n[2] ? O_APPEND : 0), 0644);
        MUST(slot[n[0]] >= 0);
    } else if (IS("memfd")) {
        MUST((slot[n[0]] = memfd_create("memory", 0)) >= 0 && ftruncate(slot[n[0]], n[1] * 4096) == 0);
    } else if (IS("eventfd")) {
        MUST((slot[n[0]] = eventfd((unsigned)n[1], 0)) >= 0);
    } else if (IS("pipe")) {
        two_ends(s, a_pipe);
    } else if (IS("pair")) {
        two_ends(s, a_pair);
    } else if (IS("tcp")) {
        two_ends(s, a_connection);
    } else if (IS("dup")) {
        MUST((slot[n[1]] = dup(slot[n[0]])) >= 0);
    } else if (IS("close")) {
        MUST(close(slot[n[0]]) == 0);
        slot[n[0]] = -1;
    } else if (IS("write")) {
        make(buffer, (size_t)n[1], (uint32_t)n[2]);
        ssize_t r = write(slot[n[0]], buffer, (size_t)n[1]);
        say("wrote %zd", r < 0 ? -errno : r);
    } else if (IS("read")) {
        get(slot[n[0]], (size_t)n[1]);
    } else if (IS("receive")) {
        ssize_t r = recv(slot[n[0]], buffer, MOST, 0);
        say("received %zd %08x", r, crc(buffer, r > 0 ? (size_t)r : 0));
    } else if (IS("add")) {
        uint64_t more = (uint64_t)n[1];
        MUST(write(slot[n[0]], &more, 8) == 8);
    } else if (IS("take")) {
        uint64_t count;
        MUST(read(slot[n[0]], &count, 8) == 8);
        say("took %lu", (unsigned long)count);
    } else if (IS("seek")) {
        say("at %ld", (long)lseek(slot[n[0]], n[1], SEEK_SET));
    } else if (IS("pwrite")) {
        make(buffer, (size_t)n[1], (uint32_t)n[2]);
        say("wrote %zd", pwrite(slot[n[0]], buffer, (size_t)n[1], n[3]));
    } else if (IS("truncate")) {
        MUST(ftruncate(slot[n[0]], n[1]) == 0);
    } else if (IS("unlink")) {
        snprintf(name, sizeof name, "%sf%ld", below ? "../" : "", n[0]);
        MUST(unlink(name) == 0);
    } else if (IS("shut")) {
        MUST(shutdown(slot[n[0]], SHUT_WR) == 0);
    } else if (IS("flags")) {
        MUST(fcntl(slot[n[0]], F_SETFD, n[1] ? FD_CLOEXEC : 0) == 0);
    } else if (IS("lock")) {
        int r = flock(slot[n[0]], LOCK_EX | LOCK_NB);
        say("lock %d", r < 0 ? errno : 0);
    } else if (IS("send")) {
        descriptor_to(slot[n[0]], slot[n[1]]);
    } else if (IS("obtain")) {
        descriptor_from(slot[n[0]], (int)n[1]);
    } else {
        return 0;
    }
    return 1;
}

static void carry_out(int which)
{
    const struct step *s = &step[which];
    at = which;
    if (IS("see"))
        see();
    else if (IS("checkpoint"))
        metamori_checkpoint();             /* without a run it does nothing */
    else if (IS("pause"))
        usleep((useconds_t)s->n[0]);
    else if (IS("work"))
        for (volatile long i = 0; i < s->n[0]; i++);
    else if (!memory_step(s) && !descriptor_step(s))
        process_step(s);
}

static void exactly(int fd, void *to, size_t n)
{
    MUST(read(fd, to, n) == (ssize_t)n);
}

static void serve(void)
{
    for (;;) {
        int which;
        exactly(command[me][0], &which, sizeof which);
        if (which < 0) {
            close(life[1]);
            _exit(0);
        }
        carry_out(which);
        MUST(write(answer[1], &me, sizeof me) == sizeof me);
    }
}

static void await(int process)
{
    while (!done[process]) {
        int who;
        exactly(answer[0], &who, sizeof who);
        done[who] = 1;
    }
}

int main(int count, char **words)
{
    FILE *program = fopen(words[count - 1], "r");
    char line[256];
    MUST(program);
    while (fgets(line, sizeof line, program)) {
        struct step *s = &step[steps++];
        long *n = s->n;
        MUST(sscanf(line, "%d %d %15s %ld %ld %ld %ld %ld", &s->process, &s->waits, s->what, n, n + 1, n + 2, n + 3, n + 4) >= 3);
    }
    fclose(program);
    memset(slot, -1, sizeof slot);
    for (int i = 0; i < PROCESSES; i++)
        done[i] = 1;
    MUST(mkdir("below", 0755) == 0);
    signal(SIGPIPE, SIG_IGN);
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigaction(SIGUSR1, &action, NULL);
    number = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(number != MAP_FAILED);
    MUST(pipe(answer) == 0 && pipe(life) == 0);
    for (int i = 1; i < PROCESSES; i++)
        MUST(pipe(command[i]) == 0);
    open_log();
    for (int i = 0; i < steps; i++) {
        int who = step[i].process;
        if (who == 0) {
            carry_out(i);
        } else {
            done[who] = strcmp(step[i].what, "exit") == 0;     /* its parent waits for it in the next step */
            MUST(write(command[who][1], &i, sizeof i) == sizeof i);
        }
        for (int k = 1; k < PROCESSES && step[i].waits; k++)
            await(k);
    }
    int end = -1;
    close(life[1]);
    for (int i = 1; i < PROCESSES; i++)
        MUST(write(command[i][1], &end, sizeof end) == sizeof end);
    MUST(read(life[0], line, 1) == 0);     /* all have ended */
    at = steps;
    say("end");
    return 0;
}
