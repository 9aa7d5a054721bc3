/* waits.c - every call that a signal could interrupt, each in a thread of its own, while checkpoints are taken.
 * None may return early, or with a part, or say EINTR but for the program's own signal; the output is the same however often it is stopped. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 900, RACES = 400 };

static int pipes[8][2];
static sem_t never, later;
static int ended[64];
static char said[64][80];

static struct timespec in(clockid_t clock, long ms)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_sec += ms / 1000, t.tv_nsec += ms % 1000 * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
    return t;
}

static const struct timespec some = { WAIT_MS / 1000, WAIT_MS % 1000 * 1000000l };
static int empty_epoll(void) { return epoll_create1(EPOLL_CLOEXEC); }

static int sleeps(void) { return nanosleep(&some, NULL); }
static int sleeps_left(void) { struct timespec left; return nanosleep(&some, &left); }
static int sleeps_clock(void) { errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &some, NULL); return errno; }
static int sleeps_until(void)
{
    struct timespec until = in(CLOCK_MONOTONIC, WAIT_MS);
    return errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}
static int sleeps_us(void) { return usleep(WAIT_MS * 1000); }
static int sleeps_s(void) { return (int)sleep(1); }
static int sleeps_c11(void) { return thrd_sleep(&some, NULL); }
static int polls(void) { struct pollfd p = { pipes[0][0], POLLIN, 0 }; return poll(&p, 1, WAIT_MS); }
static int ppolls(void) { struct pollfd p = { pipes[0][0], POLLIN, 0 }; return ppoll(&p, 1, &some, NULL); }
static int selects(void)
{
    struct timeval time = { 0, WAIT_MS * 1000l };
    int r = select(0, NULL, NULL, NULL, &time);
    return r ? r : time.tv_sec || time.tv_usec ? 7 : 0;
}
static int pselects(void) { return pselect(0, NULL, NULL, NULL, &some, NULL); }
static int epolls(void) { struct epoll_event e; return epoll_wait(empty_epoll(), &e, 1, WAIT_MS); }
static int epolls_p(void) { struct epoll_event e; return epoll_pwait(empty_epoll(), &e, 1, WAIT_MS, NULL); }
static int epolls_p2(void) { struct epoll_event e; return epoll_pwait2(empty_epoll(), &e, 1, &some, NULL); }
static int signals(void)
{
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    return sigtimedwait(&set, NULL, &some);
}
static int semaphores(void) { struct timespec until = in(CLOCK_REALTIME, WAIT_MS); return sem_timedwait(&never, &until); }
static int semaphores_clock(void)
{
    struct timespec until = in(CLOCK_MONOTONIC, WAIT_MS);
    return sem_clockwait(&never, CLOCK_MONOTONIC, &until);
}
static int conditions(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec until = in(CLOCK_REALTIME, WAIT_MS);
    pthread_mutex_lock(&mutex);
    while ((errno = pthread_cond_timedwait(&condition, &mutex, &until)) == 0)
        continue;
    pthread_mutex_unlock(&mutex);
    return errno;
}

/* without an end of their own: what they wait for comes from the main thread */
static int reads(void) { char c = 0; return read(pipes[1][0], &c, 1) == 1 ? c : -1; }
static int polls_ever(void) { struct pollfd p = { pipes[2][0], POLLIN, 0 }; return poll(&p, 1, -1); }
static int selects_ever(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipes[3][0], &set);
    return select(pipes[3][0] + 1, &set, NULL, NULL, NULL);
}
static int epolls_ever(void)
{
    struct epoll_event e = { .events = EPOLLIN };
    int fd = empty_epoll();
    epoll_ctl(fd, EPOLL_CTL_ADD, pipes[4][0], &e);
    return epoll_wait(fd, &e, 1, -1);
}
static int semaphores_ever(void) { return sem_wait(&later); }
static int pauses(void) { return pause(); }      /* EINTR is right here: SIGUSR1 is sent to it until it has ended */

/* A signal that comes at any moment around a checkpoint is neither lost nor doubled. */
static volatile sig_atomic_t alarms;
static void on_alarm(int number) { (void)number, alarms++; }
static int races(void)
{
    sigset_t none;
    sigemptyset(&none);
    int wrong = 0;
    unsigned long seed = 7;
    for (int i = 1; i <= RACES; i++) {
        seed = seed * 6364136223846793005ul + 1442695040888963407ul;
        struct itimerval once = { { 0, 0 }, { 0, 1 + (long)(seed >> 33) % 3000 } };
        setitimer(ITIMER_REAL, &once, NULL);
        int r = i % 2 ? sigsuspend(&none) : ppoll(NULL, 0, NULL, &none);
        wrong += r != -1 || errno != EINTR || alarms != i;
    }
    return wrong;
}

/* held up by the other end, which takes or gives a little at a time: all at once for whoever waits */
enum { HELD = 5, BYTES = 300000, PIECES = 100 };
static int ends[HELD][2];
static char bytes[BYTES];
static void *slowly(void *which)
{
    int fd = ends[(long)which][0];
    char piece[BYTES / PIECES];
    for (int done = 0, r = 1; done < BYTES && r > 0; done += r) {
        usleep(WAIT_MS * 1000 / PIECES);
        r = which == (void *)(HELD - 1) ? (int)write(fd, bytes, sizeof piece) : (int)read(fd, piece, sizeof piece);
    }
    return NULL;
}
static int held_up(long which, int fd)
{
    struct iovec two[2] = { { bytes, 1000 }, { bytes + 1000, BYTES - 1000 } };
    struct msghdr message = { .msg_iov = two, .msg_iovlen = 2 };
    pthread_t other;
    pthread_create(&other, NULL, slowly, (void *)which);
    long r = which == 0 ? write(fd, bytes, BYTES) : which == 1 ? writev(fd, two, 2) : which == 2 ? send(fd, bytes, BYTES, 0)
           : which == 3 ? sendmsg(fd, &message, 0) : recv(fd, bytes, BYTES, MSG_WAITALL);
    pthread_join(other, NULL);
    return (int)r - BYTES;
}
static int writes(void) { return held_up(0, ends[0][1]); }
static int writes_vector(void) { return held_up(1, ends[1][1]); }
static int sends(void) { return held_up(2, ends[2][1]); }
static int sends_message(void) { return held_up(3, ends[3][1]); }
static int wants_all(void) { return held_up(4, ends[4][1]); }

static const struct { const char *name; int (*wait)(void); int timed; } kind[] = {
    { "nanosleep", sleeps, 1 }, { "nanosleep, left", sleeps_left, 1 }, { "clock_nanosleep", sleeps_clock, 1 },
    { "clock_nanosleep until", sleeps_until, 1 }, { "usleep", sleeps_us, 1 }, { "sleep", sleeps_s, 1 },
    { "thrd_sleep", sleeps_c11, 1 }, { "poll", polls, 1 }, { "ppoll", ppolls, 1 }, { "select", selects, 1 },
    { "pselect", pselects, 1 }, { "epoll_wait", epolls, 1 }, { "epoll_pwait", epolls_p, 1 },
    { "epoll_pwait2", epolls_p2, 1 }, { "sigtimedwait", signals, 1 }, { "sem_timedwait", semaphores, 1 },
    { "sem_clockwait", semaphores_clock, 1 }, { "pthread_cond_timedwait", conditions, 1 },
    { "write", writes, 0 }, { "writev", writes_vector, 0 }, { "send", sends, 0 }, { "sendmsg", sends_message, 0 },
    { "recv of all", wants_all, 0 },
    { "read", reads, 0 }, { "poll, no end", polls_ever, 0 }, { "select, no end", selects_ever, 0 },
    { "epoll_wait, no end", epolls_ever, 0 }, { "sem_wait", semaphores_ever, 0 }, { "pause", pauses, 0 },
};
enum { KINDS = sizeof kind / sizeof kind[0] };

static void *one(void *argument)
{
    long i = (long)argument;
    struct timespec begun = in(CLOCK_MONOTONIC, 0), done;
    errno = 0;
    int r = kind[i].wait(), e = errno;
    clock_gettime(CLOCK_MONOTONIC, &done);
    double ms = (done.tv_sec - begun.tv_sec) * 1e3 + (done.tv_nsec - begun.tv_nsec) / 1e6;
    snprintf(said[i], sizeof said[i], "%s: %d, %s%s", kind[i].name, r, r ? strerror(e) : "as it should",
             kind[i].timed && ms < WAIT_MS ? ", too early" : "");
    __atomic_store_n(&ended[i], 1, __ATOMIC_RELEASE);
    return NULL;
}

static void nothing(int number) { (void)number; }

int main(void)
{
    pthread_t thread[KINDS];
    sigset_t blocked;
    signal(SIGUSR1, nothing);
    signal(SIGALRM, on_alarm);
    sigemptyset(&blocked), sigaddset(&blocked, SIGUSR2), sigaddset(&blocked, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    sem_init(&never, 0, 0), sem_init(&later, 0, 0);
    for (int i = 0; i < 8; i++)
        if (pipe(pipes[i]) < 0)
            return 1;
    for (int i = 0; i < HELD; i++)
        if (i < 2 ? pipe(ends[i]) < 0 : socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]) < 0)
            return 1;
    for (long i = 0; i < KINDS; i++)
        if (pthread_create(&thread[i], NULL, one, (void *)i))
            return 1;
    printf("races: %d wrong\n", races());
    for (int i = 0; i < KINDS; i++)
        if (kind[i].timed)
            pthread_join(thread[i], NULL);
    sem_post(&later);
    for (int i = 1; i <= 4; i++)
        if (write(pipes[i][1], "x", 1) != 1)
            return 1;
    while (!__atomic_load_n(&ended[KINDS - 1], __ATOMIC_ACQUIRE)) {
        pthread_kill(thread[KINDS - 1], SIGUSR1);
        usleep(20000);
    }
    for (int i = 0; i < KINDS; i++) {
        if (!kind[i].timed)
            pthread_join(thread[i], NULL);
        puts(said[i]);
    }
    return 0;
}
