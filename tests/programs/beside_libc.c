/* Each function of shim_c/src/libc/old_libc.c beside the C library's own of the same name: same answer, same errno, same bytes.
 * Prints the names that were compared; a difference is said on standard error and the status is 1. */
#include "libc/old_libc.c"

#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#define CALL(group, type, name, parameters) type (*real_##name) parameters;
#define ALIAS(group, alias, name)
#include "libc/calls.def"
#undef CALL
#undef ALIAS
void mm_begin(void) { abort(); }

static int wrong;
static char here[2][4096];             /* what the two calls left */

/* Twice the same call: theirs first, ours then. */
#define SAME(name, call)                                                                                        \
    do {                                                                                                        \
        errno = 0;                                                                                              \
        long theirs_ = (long)(call(name, 0)), e_ = errno;                                                       \
        errno = 0;                                                                                              \
        long ours_ = (long)(call(real_##name, 1)), f_ = errno;                                                  \
        if (theirs_ != ours_ || e_ != f_ || memcmp(here[0], here[1], sizeof here[0])) {                         \
            fprintf(stderr, #name " line %d: %ld, errno %ld; here %ld, errno %ld\n", __LINE__, theirs_, e_, ours_, f_); \
            wrong = 1;                                                                                          \
        }                                                                                                       \
        memset(here, 0, sizeof here);                                                                           \
    } while (0)
#define ST(turn) ((struct stat *)here[turn])

static void metadata(void)
{
    for (int i = 0; i < 4; i++) {
        const char *path = (const char *[]){ "file", "link", "nowhere", "file/below" }[i];
#define A(f, t) f(path, ST(t))
        SAME(stat, A);
        SAME(lstat, A);
#define B(f, t) f(AT_FDCWD, path, ST(t), i & 1 ? AT_SYMLINK_NOFOLLOW : 0)
        SAME(fstatat, B);
#define C(f, t) f(AT_FDCWD, path, 0, STATX_BASIC_STATS, (struct statx *)here[t])
        SAME(statx, C);
    }
    int fds[] = { open("file", O_RDONLY), 0, -1, 9999 };
    for (int i = 0; i < 4; i++) {
#define D(f, t) f(fds[i], ST(t))
        SAME(fstat, D);
    }
#define E(f, t) f(AT_FDCWD, "file", ST(t), 0x40000000)
    SAME(fstatat, E);
    close(fds[0]);
}

static void names(void)
{
#define F(f, t) (f(t ? "node1" : "node0", S_IFIFO | 0640, 0))
    SAME(mknod, F);
    SAME(mknod, F);                    /* there already */
#define G(f, t) (f(AT_FDCWD, t ? "sock1" : "sock0", S_IFSOCK | 0600, 0))
    SAME(mknodat, G);
#define H(f, t) (f(AT_FDCWD, "sockx", S_IFCHR | 0600, 1ull << 60))
    SAME(mknodat, H);
#define I(f, t) (f(AT_FDCWD, t ? "node1" : "node0", AT_FDCWD, "file", RENAME_NOREPLACE))
    SAME(renameat2, I);
#define J(f, t) (f(AT_FDCWD, "file", AT_FDCWD, "link", RENAME_EXCHANGE))
    SAME(renameat2, J);
#define K(f, t) (f(AT_FDCWD, "file", AT_FDCWD, "link", 99))
    SAME(renameat2, K);
}

static void data(void)
{
    int fd = open("data", O_RDWR | O_CREAT, 0600), to = open("copy", O_RDWR | O_CREAT, 0600);
    struct iovec out = { "hello", 5 };
#define L(f, t) f(fd, &out, 1, t * 5, 0)
    SAME(pwritev2, L);
#define M(f, t) f(fd, &out, 1, 0, RWF_APPEND)
    SAME(pwritev2, M);
#define N(f, t) f(fd, &(struct iovec){ here[t], 3 }, 1, 1, 0)
    SAME(preadv2, N);
    for (int flags = 0; flags < 2; flags++) {
        lseek(fd, 0, SEEK_SET);
#define O(f, t) (lseek(fd, 2, SEEK_SET), f(fd, &(struct iovec){ here[t], 3 }, 1, -1, flags ? 0x40000000 : 0))
        SAME(preadv2, O);
    }
#define P(f, t) f(fd, &(off_t){ 1 }, to, &(off_t){ t * 4 }, 4, 0)
    SAME(copy_file_range, P);
#define Q(f, t) f(fd, NULL, to, NULL, 4, 77)
    SAME(copy_file_range, Q);
    lseek(to, 0, SEEK_SET);
    if (read(to, here[0], 8) != 8 || memcmp(here[0], here[0] + 4, 4)) {
        fprintf(stderr, "copy_file_range: other bytes\n");
        wrong = 1;
    }
    memset(here, 0, sizeof here);
    close(fd);
    close(to);
}

static int open_ones(int from)
{
    int n = 0;
    for (int fd = from; fd < 60; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}
static int with_descriptors(int r) { return r * 1000 + open_ones(20); }
static int nothing(void (*f)(int), int from) { f(from); return open_ones(20); }
static int some_open(void)
{
    for (int fd = 30; fd < 40; fd++)
        dup2(0, fd);
    return 0;
}

static void descriptors(void)
{
#define R(f, t) (some_open(), with_descriptors(f(32, 35, 0)))
    SAME(close_range, R);
#define S(f, t) (some_open(), with_descriptors(f(35, 32, 0)))
    SAME(close_range, S);
#define T(f, t) (some_open(), nothing(f, 33))
    SAME(closefrom, T);
#define U(f, t) f(-1, 0, 0)
    SAME(pidfd_getfd, U);
#define PIDFD(f, t) (f(getpid(), 0) >= 0)
    SAME(pidfd_open, PIDFD);
#define NO_PIDFD(f, t) f(0, 77)
    SAME(pidfd_open, NO_PIDFD);
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#define V(f, t) f(page, 4096, PROT_READ | PROT_WRITE, -1)
    SAME(pkey_mprotect, V);
#define W(f, t) f((char *)page + 1, 4096, PROT_READ, -1)
    SAME(pkey_mprotect, W);
#define X(f, t) f(page, 4096, PROT_READ, 77)
    SAME(pkey_mprotect, X);
#define KEY(f, t) f(77, 77)
}

static int status_of(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}
static int child(pid_t (*f)(void))
{
    pid_t pid = f();
    if (pid == 0)
        _exit(7);
    return status_of(pid);
}
static int run(int (*f)(int, const char *, char *const[], char *const[], int))
{
    pid_t pid = fork();
    if (pid == 0) {
        f(AT_FDCWD, "/bin/sh", (char *[]){ "sh", "-c", "exit 9", NULL }, (char *[]){ NULL }, 0);
        _exit(1);
    }
    return status_of(pid);
}

static void processes(void)
{
#define Y(f, t) child(f)
    SAME(_Fork, Y);
#define Z(f, t) run(f)
    SAME(execveat, Z);
#define AA(f, t) f(AT_FDCWD, "nowhere", (char *[]){ "x", NULL }, (char *[]){ NULL }, 0)
    SAME(execveat, AA);
#define AB(f, t) f()
    SAME(gettid, AB);
#define AC(f, t) f(getpid(), real_gettid(), 0)
    SAME(tgkill, AC);
#define AD(f, t) f(getpid(), -1, 0)
    SAME(tgkill, AD);
}

static struct timespec soon(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += 5000000;
    return t.tv_nsec < 1000000000 ? t : (struct timespec){ t.tv_sec + 1, t.tv_nsec - 1000000000 };
}

static void waits(void)
{
#define AE(f, t) f(&(struct timespec){ 0, 1000000 }, NULL)
    SAME(thrd_sleep, AE);
#define AF(f, t) f(&(struct timespec){ 0, -1 }, NULL)
    SAME(thrd_sleep, AF);
    int epoll = epoll_create1(0);
#define AG(f, t) f(epoll, (struct epoll_event *)here[t], 4, &(struct timespec){ 0, 1000000 }, NULL)
    SAME(epoll_pwait2, AG);
#define AH(f, t) f(-1, (struct epoll_event *)here[t], 4, NULL, NULL)
    SAME(epoll_pwait2, AH);
    sem_t full, empty;
    sem_init(&full, 0, 2);
    sem_init(&empty, 0, 0);
    for (int i = 0; i < 2; i++) {
        clockid_t clock = i ? CLOCK_MONOTONIC : CLOCK_REALTIME;
        struct timespec until = soon(clock), never = { 5, 1000000000 };
        if (i == 0)
            sem_post(&full), sem_post(&full);
#define AI(f, t) f(&full, clock, &until)
        SAME(sem_clockwait, AI);
#define AJ(f, t) f(&empty, clock, &until)
        SAME(sem_clockwait, AJ);
#define AK(f, t) f(&empty, clock, &never)
        SAME(sem_clockwait, AK);
    }
#define AL(f, t) f(&empty, CLOCK_BOOTTIME, &(struct timespec){ 1, 0 })
    SAME(sem_clockwait, AL);
}

int main(void)
{
    real_fork = fork;
    real_sem_timedwait = sem_timedwait;
    mm_old_libc();
    close(open("file", O_CREAT | O_WRONLY, 0644));
    if (symlink("file", "link"))
        return 2;
    metadata();
    names();
    data();
    descriptors();
    processes();
    waits();
    real_fork = NULL;
#define CALL(group, type, name, parameters) \
    if (real_##name && real_##name != (type (*) parameters)(void *)sem_timedwait) \
        puts(#name);
#define ALIAS(group, alias, name)
#include "libc/calls.def"
    return wrong;
}
