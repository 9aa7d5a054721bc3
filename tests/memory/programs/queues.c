/* queues.c - message queues of POSIX between processes; what they print depends on nothing but themselves, also after they were
 * brought back.
 *
 *   queues work          takes turns through queues that hold messages, block and are named, nameless, or closed
 *   queues told          is told of each message by a signal with a value
 *   queues WORD          says the name of its queue, waits for the file "go", and reads what is in it; first: waits to be told of the
 *                        first message, too; mode: may not read it, were it opened again */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS 40
#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

static char name[64];

static uint32_t work(uint32_t state)
{
    for (int i = 0; i < 3000000; i++)
        state = state * 1664525u + 1013904223u;
    return state;
}

static mqd_t made(const char *what, long most, long size)
{
    struct mq_attr how = { .mq_maxmsg = most, .mq_msgsize = size };
    snprintf(name, sizeof name, "/metamori-%s-%d", what, (int)getpid());
    mqd_t q = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &how);
    MUST(q >= 0);
    return q;
}

static void put(mqd_t q, uint32_t value, unsigned priority) { MUST(mq_send(q, (char *)&value, sizeof value, priority) == 0); }
static uint32_t got(mqd_t q, unsigned *priority)
{
    uint32_t value = 0;
    char room[64];
    ssize_t n = mq_receive(q, room, sizeof room, priority);
    MUST(n == sizeof value);
    memcpy(&value, room, sizeof value);
    return value;
}

/* The child waits for numbers most of the time, and works on each; what it says fills a queue of two. */
static int child(mqd_t asked, mqd_t said)
{
    uint32_t state = 1;
    for (int i = 0; i < STEPS; i++) {
        state = work(state ^ got(asked, NULL));
        put(said, state, 1);
    }
    return 7;
}

static void works(void)
{
    struct mq_attr how;
    mqd_t kept = made("kept", 5, 64);
    char closed[64];
    strcpy(closed, name);
    for (unsigned i = 0; i < 5; i++)       /* received in another order: by priority */
        put(kept, 100 + i, i % 3);
    MUST(mq_close(kept) == 0);             /* nobody has it open any more */
    mqd_t asked = made("asked", 3, 64);
    char open_name[64];
    strcpy(open_name, name);
    mqd_t said = made("said", 2, 64);
    MUST(mq_unlink(name) == 0);
    mqd_t own = made("own", 4, 64), same = dup(own);
    MUST(mq_unlink(name) == 0);
    how = (struct mq_attr){ .mq_flags = O_NONBLOCK };
    MUST(mq_setattr(own, &how, NULL) == 0);
    put(own, 5, 9), put(own, 6, 9), put(own, 7, 30000);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0)
        _exit(child(asked, said));
    uint32_t sum = 0;
    for (int i = 0; i < STEPS; i++) {
        put(asked, (uint32_t)i, 0);
        if (i % 3 == 2)
            sum = work(sum);               /* the child waits for a place */
        if (i >= 2)
            printf("%d %u\n", i, got(said, NULL));
    }
    printf("%u %u\n", got(said, NULL), got(said, NULL));
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    unsigned priority;
    while (mq_getattr(same, &how) == 0 && how.mq_curmsgs) {
        uint32_t value = got(same, &priority);
        printf("%u of %u\n", value, priority);
    }
    char room[64];
    MUST(mq_receive(same, room, sizeof room, NULL) < 0 && errno == EAGAIN && how.mq_flags == O_NONBLOCK);
    printf("%ld %ld %d\n", how.mq_maxmsg, how.mq_msgsize, WEXITSTATUS(status));
    kept = mq_open(closed, O_RDONLY);
    MUST(kept >= 0 && mq_getattr(kept, &how) == 0 && how.mq_curmsgs == 5 && how.mq_maxmsg == 5 && how.mq_flags == 0);
    for (int i = 0; i < 5; i++) {
        uint32_t value = got(kept, &priority);
        printf("%u of %u\n", value, priority);
    }
    MUST(mq_open(open_name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL) < 0 && errno == EEXIST);
    MUST(mq_unlink(closed) == 0 && mq_unlink(open_name) == 0);
}

/* A signal that waits at the instant comes back without what it says. */
static volatile sig_atomic_t came, value, is_whole;
static void handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    value = info->si_value.sival_int, is_whole = info->si_code == SI_MESGQ, came++;
}

static void ask(mqd_t q, int i)
{
    struct sigevent how = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = i };
    MUST(mq_notify(q, &how) == 0);
}

/* The next when the one before was received. */
static int sends(mqd_t q, pid_t parent)
{
    struct mq_attr how;
    uint32_t state = 1;
    for (int i = 0; i < STEPS; i++) {
        state = work(state);
        put(q, state, 0);
        do
            usleep(1000), mq_getattr(q, &how);
        while (how.mq_curmsgs && getppid() == parent);
    }
    return 0;
}

static void told(void)
{
    struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART };
    MUST(sigaction(SIGUSR1, &action, NULL) == 0);
    mqd_t q = made("told", 3, 64), other = dup(q);
    MUST(mq_unlink(name) == 0 && other >= 0);
    pid_t parent = getpid();
    ask(q, 1000);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0)
        _exit(sends(q, parent));
    for (int i = 0; i < STEPS; i++) {
        while (came <= i)
            usleep(1000);
        MUST(came == i + 1 && (value == 1000 + i || !is_whole));
        ask(q, 1001 + i);
        printf("%d %u\n", i, got(q, NULL));
    }
    int status;
    MUST(mq_notify(q, NULL) == 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

static void waits(void)
{
    puts("ready");
    while (access("go", F_OK) != 0)
        usleep(20000);
}

static void keeps(const char *what)
{
    mqd_t q = made(what, 3, 64);
    put(q, 17, 3), put(q, 18, 4);
    if (strcmp(what, "first") == 0)
        ask(q, 1);
    if (strcmp(what, "mode") == 0)
        MUST(fchmod(q, 0200) == 0);
    printf("%s\n", name);
    waits();
    unsigned priority;
    uint32_t first = got(q, &priority);
    printf("%u of %u, %u\n", first, priority, got(q, NULL));
    MUST(mq_unlink(name) == 0);
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *what = count > 1 ? words[1] : "work";
    strcmp(what, "work") == 0 ? works() : strcmp(what, "told") == 0 ? told() : keeps(what);
    return 0;
}
