/* Descriptors that travel, raw system calls, locks, small stacks, handlers and cancellation: as without Metamori. */
#include "say.h"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"   /* sigset */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

static char block[8000];

static int waited(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static void pass(int socket, int fd)
{
    char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 'x';
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    SAY(sendmsg(socket, &message, 0));
}

static int take(int socket)
{
    char room[CMSG_SPACE(sizeof(int))], byte;
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd = -1;
    if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void travelling(void)
{
    int pair[2], fd = open("passed", O_RDWR | O_CREAT, 0644);
    char text[32] = "";
    if (lseek(fd, 0, SEEK_END) == 0)
        write(fd, block, sizeof block);
    pwrite(fd, "overwritten", 11, 100);
    lseek(fd, 95, SEEK_SET);
    SAY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pid_t pid = fork();
    if (!pid) {
        close(fd);
        int got = take(pair[1]);
        read(got, text, 12);
        write(got, "child", 5);
        pwrite(got, text, 12, 4090);
        _exit(lseek(got, 0, SEEK_CUR) == 95 + 12 + 5 ? text[5] : 1);
    }
    pass(pair[0], fd);
    SAY(waited(pid));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(pread(fd, text, 20, 4088) + text[2]);
    pass(pair[0], fd);                 /* on its way while nobody has it open */
    SAY(lseek(fd, 7, SEEK_SET));
    close(fd);
    fd = take(pair[1]);
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(write(fd, "again", 5));
    int process = pidfd_open(getpid(), 0), same = pidfd_getfd(process, fd, 0);
    SAY(lseek(same, 3, SEEK_CUR));
    SAY(write(same, "same", 4));
    SAY(lseek(fd, 0, SEEK_CUR));
    char name[40];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int another = open(name, O_RDWR), third = open(name + 6, O_RDONLY);
    SAY(lseek(another, 0, SEEK_CUR));
    SAY(pwrite(another, "reopened", 8, 500));
    SAY(third);
    SAY(pread(fd, text, 8, 500) + text[0]);
    close(another), close(same), close(process), close(fd), close(pair[0]), close(pair[1]);
}

static int cloned(void *data)
{
    int fd = *(int *)data;
    return write(fd, "by clone ", 9) == 9 && close(fd) == 0 ? 21 : 1;
}

static void raw(void)
{
    struct stat st;
    char text[16] = "";
    int fd = syscall(SYS_openat, AT_FDCWD, "raw", O_RDWR | O_CREAT, 0640);
    struct iovec two[2] = {{"abc", 3}, {"defg", 4}};
    SAY(syscall(SYS_lseek, fd, 0, SEEK_END) >= 0);
    SAY(syscall(SYS_write, fd, block, 5000));
    SAY(syscall(SYS_pwrite64, fd, "PWRITE", 6, 10));
    SAY(syscall(SYS_pwritev, fd, two, 2, 40, 0));
    SAY(syscall(SYS_lseek, fd, 8, SEEK_SET));
    SAY(syscall(SYS_read, fd, text, 10));
    SAY(memcmp(text + 2, "PWRITE", 6));
    SAY(syscall(SYS_writev, fd, two, 2));
    SAY(syscall(SYS_fstat, fd, &st));
    SAY(st.st_size % 5000);
    SAY(syscall(SYS_ftruncate, fd, 5000));
    SAY(syscall(SYS_write, -1, block, 1));
    SAY(syscall(SYS_write, fd, NULL, 1));
    SAY(syscall(SYS_rename, "raw", "raw2"));
    SAY(syscall(SYS_newfstatat, AT_FDCWD, "raw2", &st, 0));
    SAY(st.st_mode);
    SAY(syscall(SYS_linkat, AT_FDCWD, "raw2", AT_FDCWD, "raw", 0));
    SAY(syscall(SYS_unlink, "raw2"));
    SAY(syscall(SYS_unlink, "raw2"));
    SAY(syscall(SYS_fchmodat, AT_FDCWD, "raw", 0600));
    int copy = syscall(SYS_dup, fd);
    SAY(syscall(SYS_lseek, copy, 0, SEEK_CUR));
    pid_t pid = syscall(SYS_fork);
    if (!pid) {
        write(copy, "raw child ", 10);
        close(fd);
        _exit(20);
    }
    SAY(waited(pid));
    static char stack[65536] __attribute__((aligned(16)));
    SAY(waited(clone(cloned, stack + sizeof stack, SIGCHLD, &copy)));
    SAY(syscall(SYS_lseek, fd, 0, SEEK_CUR));
    SAY(syscall(SYS_close, copy));
    SAY(syscall(SYS_close, fd));
    SAY(syscall(SYS_close, fd));
    SAY(syscall(SYS_getpid) == getpid());
    SAY(syscall(-1));
}

/* Whether another process finds bytes [0, 10) of a file locked, by each kind of lock. */
static int seen_locked(const char *name)
{
    pid_t pid = fork();
    if (!pid) {
        int fd = open(name, O_RDWR);
        struct flock posix = {.l_type = F_WRLCK, .l_len = 10}, ofd = {.l_type = F_WRLCK, .l_start = 20, .l_len = 10};
        int bits = fcntl(fd, F_SETLK, &posix) < 0;
        bits |= (fcntl(fd, F_OFD_SETLK, &ofd) < 0) << 1;
        bits |= (flock(fd, LOCK_EX | LOCK_NB) < 0) << 2;
        lseek(fd, 40, SEEK_SET);
        bits |= (lockf(fd, F_TLOCK, 10) < 0) << 3;
        _exit(bits);
    }
    return WEXITSTATUS(waited(pid));
}

/* A reader's lock, on a file that the run has not written before: others that want to write find it. */
static void only_read_and_locked(void)
{
    int fd = open("readers", O_RDWR | O_CREAT, 0644);
    SAY(write(fd, block, sizeof block));
    close(fd);
    metamori_checkpoint();
    fd = open("readers", O_RDONLY);
    struct flock shared = {.l_type = F_RDLCK, .l_len = 10};
    SAY(fcntl(fd, F_SETLK, &shared));
    SAY(seen_locked("readers"));
    int cut = open("readers", O_RDONLY | O_TRUNC | O_CREAT, 0600);
    SAY(seen_locked("readers"));
    SAY(lseek(fd, 0, SEEK_END) + lseek(cut, 0, SEEK_END));
    SAY(open("readers", O_RDONLY | O_TRUNC | O_CREAT | O_EXCL, 0600));
    SAY(open("readers", O_RDONLY | O_TRUNC | O_DIRECTORY));
    SAY(open("/proc/self/exe", O_RDONLY | O_TRUNC));
    SAY(seen_locked("readers"));
    close(cut);
    SAY(seen_locked("readers"));
    close(fd);
}

/* Locks whose place is counted from the position and from the end, where those are not the kernel's any more. */
static void places_of_locks(void)
{
    int fd = open("readers", O_RDWR);
    SAY(write(fd, block, sizeof block));
    metamori_checkpoint();
    SAY(pwrite(fd, "redirected", 10, 100));
    SAY(lseek(fd, -3000, SEEK_END));
    SAY(write(fd, block, 3500));       /* position and end are 8500 */
    struct flock cur = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = -8500, .l_len = 5};
    SAY(fcntl(fd, F_SETLK, &cur));
    SAY(seen_locked("readers"));
    struct flock end = {.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -8480, .l_len = 3};
    SAY(fcntl(fd, F_OFD_SETLK, &end));
    SAY(seen_locked("readers"));
    SAY(lseek(fd, 44, SEEK_SET));
    SAY(lockf(fd, F_TLOCK, -3));
    SAY(seen_locked("readers"));
    end.l_start = -8501;
    SAY(fcntl(fd, F_SETLK, &end));
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -8500, .l_len = 7};
        int r = fcntl(fd, F_GETLK, &asked);
        printf("asked %d: type %d whence %d start %ld length %ld mine %d\n", r, asked.l_type, asked.l_whence,
               (long)asked.l_start, (long)asked.l_len, asked.l_pid == getppid());
        asked = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -300, .l_len = 7};
        r = fcntl(fd, F_GETLK, &asked);
        printf("asked %d: type %d whence %d start %ld length %ld\n", r, asked.l_type, asked.l_whence,
               (long)asked.l_start, (long)asked.l_len);
        fflush(stdout);
        _exit(0);
    }
    SAY(waited(pid));
    close(fd);
}

static void locks(void)
{
    int fd = open("locked", O_RDWR | O_CREAT, 0644), only = open("locked", O_WRONLY);
    struct flock posix = {.l_type = F_WRLCK, .l_len = 10}, ofd = {.l_type = F_WRLCK, .l_start = 20, .l_len = 10};
    SAY(pwrite(fd, block, sizeof block, 0));
    SAY(fcntl(only, F_SETLK, &posix));
    SAY(fcntl(fd, F_OFD_SETLK, &ofd));
    SAY(flock(fd, LOCK_EX));
    SAY(lseek(only, 40, SEEK_SET));
    SAY(lockf(only, F_LOCK, 10));
    SAY(seen_locked("locked"));
    metamori_checkpoint();             /* what it opens and closes drops no lock */
    SAY(seen_locked("locked"));
    SAY(pwrite(only, "in the middle", 13, 4090));
    SAY(pwrite(only, "more", 4, 9));
    SAY(truncate("locked", 7000));
    SAY(ftruncate(only, 6000));
    metamori_checkpoint();
    SAY(pwrite(only, "more", 4, 5000));
    SAY(seen_locked("locked"));
    int cut = open("locked", O_RDONLY | O_TRUNC);   /* Linux truncates, and drops no lock */
    SAY(fcntl(cut, F_GETFL) & O_ACCMODE);
    SAY(read(cut, block, 10));
    SAY(write(cut, block, 10));
    SAY(pwrite(fd, block, 5000, 0));
    SAY(pread(cut, block, 6000, 0));
    SAY(seen_locked("locked"));
    close(only);
    SAY(seen_locked("locked"));
    close(fd);
    SAY(seen_locked("locked"));
    only_read_and_locked();
    places_of_locks();
}

static void *on_small_stack(void *data)
{
    long n = (long)data;
    char name[32], other[32];
    snprintf(name, sizeof name, "small%ld", n);
    pthread_attr_t mine;
    if (pthread_getattr_np(pthread_self(), &mine) || pthread_attr_destroy(&mine)
        || pthread_getname_np(pthread_self(), other, sizeof other))
        abort();
    snprintf(other, sizeof other, "moved%ld", n);
    for (int i = 0; i < 5; i++) {
        int fd = open(name, O_RDWR | O_CREAT, 0644);
        write(fd, block, 5000);
        pwrite(fd, name, 6, 4093);
        read(fd, other + 16, 10);
        ftruncate(fd, 4500);
        close(fd);
        rename(name, other);
        link(other, name);
        unlink(other);
        chmod(name, 0640);
        truncate(name, 4400);
    }
    return NULL;
}

static int alarmed_fd = -1, handler_fd = -1;
static volatile int alarms;
static void on_alarm(int number)
{
    (void)number;
    int saved = errno;
    alarms++;
    write(alarmed_fd, "alarm....\n", 10);
    pwrite(handler_fd, "A", 1, 3);
    int fd = open("by the handler", O_RDWR | O_CREAT | O_APPEND, 0644);
    write(fd, "h", 1);
    close(fd);
    errno = saved;
}

static volatile int signals;
static void counted(int number) { signals += number == SIGUSR1; }

static void handlers(void)
{
    struct stat st;
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, on_alarm);
    alarmed_fd = open("alarmed", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    int whole = handler_fd = open("whole", O_RDWR | O_CREAT, 0644), lines = 0, bad = 0;
    for (int i = 0; i < 100; i++)
        write(alarmed_fd, "program..\n", 10);
    metamori_checkpoint();             /* from here on overwriting goes elsewhere */
    setitimer(ITIMER_REAL, &often, NULL);
    for (lines = 100; alarms < 200; lines++) {
        write(alarmed_fd, "program..\n", 10);
        pwrite(whole, block, 4000, (lines * 1000) % 100000);
        int fd = open("whole", O_RDONLY);
        close(dup(fd));
        close(fd);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    fstat(alarmed_fd, &st);
    SAY(st.st_size == 10 * (alarms + lines));
    SAY(stat("by the handler", &st));
    SAY(st.st_size == alarms);
    char line[10];
    for (int i = 1; i < alarms + lines; i++)
        bad += pread(alarmed_fd, line, 10, i * 10) != 10
            || (memcmp(line, "program..\n", 10) && memcmp(line, "alarm....\n", 10));
    SAY(bad);
    alarms = 0;
    close(alarmed_fd), close(whole);
    unlink("by the handler"), unlink("alarmed"), unlink("whole");
}

/* System V's: a handler that stays, the signal unblocked; SIG_HOLD; what was there before. */
static void held_signals(void)
{
    struct sigaction action = {.sa_handler = counted};
    SAY(sigaction(SIGUSR1, &action, NULL));
    SAY(sigset(SIGUSR1, SIG_DFL) == counted);
    SAY(sigset(SIGUSR1, counted) == SIG_DFL);
    SAY(sigset(SIGUSR1, SIG_HOLD) == counted);
    SAY(sigset(SIGUSR1, SIG_HOLD) == SIG_HOLD);
    raise(SIGUSR1);
    SAY(signals);
    SAY(sigset(SIGUSR1, counted) == SIG_HOLD);
    SAY(signals);
    SAY(sigaction(SIGUSR1, NULL, &action));
    SAY(action.sa_handler == counted);
    SAY(action.sa_flags);
    SAY(sigset(SIGUSR1, SIG_IGN) == counted);
    SAY(sigset(0, SIG_IGN) == SIG_ERR);
    SAY(sigset(SIGKILL, SIG_IGN) == SIG_ERR);
    SAY(sigset(SIGUSR1, SIG_DFL) == SIG_IGN);
}

static void once_more(int number)
{
    struct itimerval soon = {{0, 0}, {0, 200}};
    sysv_signal(number, once_more);
    on_alarm(number);
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void twice(int number)
{
    if (++signals == 1)
        raise(number);
    write(handler_fd, "t", 1);
}

/* Handlers that are called once: what stands there meanwhile and afterwards, in a child that may end by it. */
static void one_shots(void)
{
    static const int flags[] = {SA_RESETHAND, SA_RESETHAND | SA_NODEFER, SA_RESETHAND | SA_SIGINFO, SA_NODEFER};
    struct sigaction action = {.sa_handler = counted}, was;
    sigset_t none;
    handler_fd = open("one shot", O_RDWR | O_CREAT, 0644);
    write(handler_fd, block, 8000);
    metamori_checkpoint();
    sigemptyset(&none);
    for (int i = 0; i < 4; i++) {
        signals = 0, action.sa_flags = flags[i], action.sa_handler = counted;
        SAY(sigaction(SIGUSR1, &action, NULL));
        SAY(sigaction(SIGUSR1, NULL, &was));
        SAY(was.sa_handler == counted);
        SAY(was.sa_flags);
        raise(SIGUSR1);
        SAY(signals);
        SAY(sigaction(SIGUSR1, NULL, &was));
        SAY(was.sa_handler == SIG_DFL);
        SAY(was.sa_flags);
        for (int number = 0; number < 2; number++) {
            fflush(stdout);
            pid_t pid = fork();
            if (!pid) {                /* a second one inside the handler; a fault that comes again */
                signals = 0, action.sa_handler = number ? counted : twice;
                sigaction(number ? SIGSEGV : SIGUSR1, &action, NULL);
                if (number && (flags[i] & SA_RESETHAND))
                    *(volatile char *)8 = 1;
                raise(SIGUSR1);
                _exit(signals);
            }
            SAY(waited(pid));
        }
        sigset_t blocked, before;
        sigemptyset(&blocked), sigaddset(&blocked, SIGUSR1);
        sigprocmask(SIG_BLOCK, &blocked, &before);
        signals = 0, action.sa_handler = counted;
        SAY(sigaction(SIGUSR1, &action, NULL));
        raise(SIGUSR1);
        SAY(signals);
        SAY(sigsuspend(&none));
        SAY(signals);
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    SAY(sysv_signal(SIGUSR1, counted) == counted);
    SAY(signal(SIGUSR1, SIG_DFL) == counted);
    alarms = 0, alarmed_fd = open("alarmed", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
    raise(sysv_signal(SIGALRM, once_more) == SIG_ERR ? SIGKILL : SIGALRM);
    for (int i = 0; alarms < 100; i++)
        pwrite(handler_fd, block, 3000, (i * 1000) % 8000);
    signal(SIGALRM, SIG_IGN);
    SAY(lseek(alarmed_fd, 0, SEEK_END) == alarms * 10);
    char mark[8];                      /* a handler's or the program's, whichever was later */
    SAY(pread(handler_fd, mark, sizeof mark, 3));
    alarms = 0;
    close(alarmed_fd), close(handler_fd);
    unlink("by the handler"), unlink("alarmed"), unlink("one shot");
}

static void *until_cancelled(void *data)
{
    int fd = *(int *)data;
    char text[100];
    for (;;) {
        write(fd, block, 100);
        pread(fd, text, 100, 0);
        pwrite(fd, block, 100, 50);
        close(open("cancelled", O_RDONLY));
        fsync(fd);
    }
    return NULL;
}

static void cancellation(void)
{
    int fd = open("cancelled", O_RDWR | O_CREAT, 0644);
    void *result = NULL;
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, until_cancelled, &fd);
        usleep(2000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED)
            SAY(i);
        if (metamori_checkpoint() < 0 && errno != ENOSYS)
            SAY(-1);
    }
    SAY(pwrite(fd, "x", 1, 0));
    close(fd);
    unlink("cancelled");
}

static void exercise(void)
{
    memset(block, '0' + say_round, sizeof block);
    travelling();
    raw();
    locks();
    pthread_attr_t small;
    pthread_attr_init(&small);
    SAY(pthread_attr_setstacksize(&small, 16384));
    pthread_t thread[6];
    for (long i = 0; i < 6; i++)
        pthread_create(&thread[i], &small, on_small_stack, (void *)i);
    for (int i = 0; i < 6; i++)
        pthread_join(thread[i], NULL);
    handlers();
    held_signals();
    one_shots();
    cancellation();
    struct rlimit limit = {80000, 80000};
    int far = setrlimit(RLIMIT_NOFILE, &limit), fd = open("far", O_RDWR | O_CREAT, 0644);
    if (far == 0) {                    /* not everybody may have so many */
        write(dup2(fd, 70000), block, 5000);
        pwrite(70000, "far away", 8, 4090);
        close(70000);
    } else {
        write(fd, block, 5000);
        pwrite(fd, "far away", 8, 4090);
    }
    SAY(lseek(fd, 0, SEEK_CUR));
    close(fd);
}

int main(void) { return say_rounds(2, exercise); }
