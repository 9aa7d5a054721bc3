/* What the kernel keeps for a process: mappings of all kinds, handlers, an alternate stack, masks, timers, descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ticks, posix_ticks, faults;
static sigjmp_buf back;
static char *alternate;

static void tick(int n) { (void)n; ticks++; }
static void posix_tick(int n, siginfo_t *i, void *c) { (void)n; (void)c; posix_ticks += i->si_value.sival_int; }
static void fault(int n)
{
    char here;
    (void)n;
    if (&here > alternate && &here < alternate + SIGSTKSZ * 4)
        faults++;
    siglongjmp(back, 1);
}

static unsigned long sum(const unsigned char *p, size_t n)
{
    unsigned long s = 0;
    for (size_t i = 0; i < n; i++)
        s = s * 31 + p[i];
    return s;
}

static int deep(int n)                    /* the stack grows by megabytes and shrinks again */
{
    char room[4096];
    memset(room, n, sizeof room);
    return n ? deep(n - 1) + room[n % 4096] : room[0];
}

static void *waits(void *mutex)           /* a second thread that stands in a lock all the time */
{
    pthread_mutex_lock(mutex);
    return "had it";
}

int main(void)
{
    struct timespec part = { 0, 1000000 };
    unsigned char *shared = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned char *grows = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *again = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *sealed = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t length = 1 << 20;
    memset(sealed, 7, 1 << 16);
    mprotect(sealed, 1 << 15, PROT_NONE);
    alternate = malloc(SIGSTKSZ * 4);
    stack_t stack = { .ss_sp = alternate, .ss_size = SIGSTKSZ * 4 };
    sigaltstack(&stack, NULL);
    sigaction(SIGSEGV, &(struct sigaction){ .sa_handler = fault, .sa_flags = SA_ONSTACK | SA_NODEFER }, NULL);
    sigaction(SIGALRM, &(struct sigaction){ .sa_handler = tick, .sa_flags = SA_RESTART }, NULL);
    sigaction(SIGUSR1, &(struct sigaction){ .sa_sigaction = posix_tick, .sa_flags = SA_SIGINFO | SA_RESTART }, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){ { 0, 5000 }, { 0, 5000 } }, NULL);
    timer_t timer;
    timer_create(CLOCK_MONOTONIC, &(struct sigevent){ .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1,
                 .sigev_value.sival_int = 1 }, &timer);
    timer_settime(timer, 0, &(struct itimerspec){ { 0, 5000000 }, { 0, 5000000 } }, NULL);
    sigset_t blocked, old;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    raise(SIGUSR2);                       /* pending all the time */
    int ends[2], event = eventfd(5, 0), poll = epoll_create1(EPOLL_CLOEXEC);
    pipe(ends);
    write(ends[1], "in the pipe", 11);
    struct epoll_event watch = { .events = EPOLLIN, .data.u64 = 0x1234567890ull };
    epoll_ctl(poll, EPOLL_CTL_ADD, ends[0], &watch);
    int nameless = open("gone", O_RDWR | O_CREAT, 0600), twice = dup(nameless), null = open("/dev/null", O_WRONLY);
    unlink("gone");
    FILE *file = fopen("written", "w+");
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, recursive;
    pthread_mutexattr_t attribute;
    pthread_mutexattr_init(&attribute);
    pthread_mutexattr_settype(&attribute, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &attribute);
    pthread_mutex_lock(&recursive);       /* held for all of the run: its owner is a thread number */
    pthread_mutex_lock(&mutex);
    pthread_t thread;
    pthread_create(&thread, NULL, waits, &mutex);
    long pid = getpid(), tid = gettid();

    for (int i = 0; i < 300; i++) {
        shared[i * 7 % 65536] += i;
        grows = mremap(grows, length, length + 4096, MREMAP_MAYMOVE);
        length += 4096;
        memset(grows + length - 4096, i, 4096);
        if (i % 20 == 10) {
            madvise(again, 1 << 19, MADV_DONTNEED);
            munmap(again + (1 << 19), 1 << 18);
            mmap(again + (1 << 19), 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        }
        memset(again + i * 3000 % (1 << 20), i, 2000);
        free(malloc(i * 1000 + 200000));
        deep(i * 4);
        if (sigsetjmp(back, 1) == 0)
            *(volatile char *)sealed = 1;
        fprintf(file, "%d half a buffer\n", i);
        pwrite(i & 1 ? nameless : twice, &i, sizeof i, i * 100);
        if (getpid() != pid || gettid() != tid || pthread_kill(thread, 0) != 0 || kill(getpid(), 0) != 0)
            printf("another process\n");
        if (pthread_mutex_lock(&recursive) != 0 || pthread_mutex_unlock(&recursive) != 0)
            printf("the lock is lost\n");
        struct timespec left = part;
        while (nanosleep(&left, &left) < 0 && errno == EINTR)
            ;
        if (i % 30 == 0) {
            printf("%d %lx %lx %lx\n", i, sum(shared, 1 << 16), sum(grows, length), sum(again, 1 << 20));
            fflush(stdout);
        }
    }
    pthread_mutex_unlock(&mutex);
    void *result;
    pthread_join(thread, &result);
    printf("%s, faults %d\n", (char *)result, faults);
    int before = ticks, posix_before = posix_ticks;
    while (ticks < before + 3 || posix_ticks < posix_before + 3)
        pause();
    mprotect(sealed, 1 << 16, PROT_READ);
    sigpending(&old);
    char text[32] = "";
    uint64_t count = 0;
    struct epoll_event ready = { 0 };
    int n = epoll_wait(poll, &ready, 1, 0);
    read(ends[0], text, 31);
    read(event, &count, 8);
    int last = 0;
    pread(twice, &last, sizeof last, 299 * 100);
    printf("%lx pending %d pipe '%s' event %lu epoll %d %lx nameless %d null %ld\n", sum(sealed, 1 << 16),
           sigismember(&old, SIGUSR2), text, (unsigned long)count, n, (unsigned long)ready.data.u64, last,
           (long)write(null, "x", 1));
    fclose(file);
    return 5;
}
