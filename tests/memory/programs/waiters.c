/* waiters.c - a process waits in the kernel for what another has, while a checkpoint is taken; three times.
 *
 *   waiters named | unlinked         at a semaphore of sem_open, whose name stays or is gone
 *   waiters queue                    for a message of a POSIX queue, beside messages in another that nobody waits for
 *   waiters mutex                    for mutexes in shared memory: robust, whose holder is killed then; lending its priority; both
 *
 * Behind its third checkpoint the program that has not come back stands and is killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <metamori.h>
#include <mqueue.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

static pid_t child(void (*run)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        alarm(60);
        run();
        _exit(0);
    }
    return pid;
}

/* It waits there: /proc says so of the number that it has now. */
static void await_waiting(pid_t pid, long call)
{
    for (long now = -1; now != call; usleep(1000)) {
        char path[64], text[64] = "";
        snprintf(path, sizeof path, "/proc/%d/syscall", pid);
        int fd = open(path, O_RDONLY);
        MUST(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
        now = *text == 'r' ? -1 : atol(text);
    }
}

static void checkpoint(void)
{
    static int taken;
    fflush(stdout);
    int index = metamori_checkpoint();
    if (index > 0 && ++taken == 3)
        sleep(600);
    taken = index == 0 ? 9 : taken;
}

static int ends(pid_t pid)
{
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* -- semaphores ----------------------------------------------------------------------------------------------------------- */

static char name_of[3][64];
static sem_t *ask, *answer, *stock;
static int unlinked;

static void answers(void)
{
    for (int i = 0; i < 9; i++)
        MUST(sem_wait(ask) == 0 && sem_post(answer) == 0);
}

/* Somebody new, who knows no more than the name. */
static void posts(void)
{
    sem_t *s = unlinked ? ask : sem_open(name_of[0], 0);
    MUST(s != SEM_FAILED && sem_post(s) == 0);
}

static void semaphores(void)
{
    sem_t **all[] = { &ask, &answer, &stock };
    int value;
    for (int i = 0; i < 3; i++) {
        snprintf(name_of[i], sizeof name_of[i], "/metamori-%d-%d", i, getpid());
        *all[i] = sem_open(name_of[i], O_CREAT | O_EXCL, 0600, i == 2 ? 4 : 0);
        MUST(*all[i] != SEM_FAILED && (!unlinked || sem_unlink(name_of[i]) == 0));
    }
    pid_t pid = child(answers);
    for (int i = 0; i < 9; i++) {
        await_waiting(pid, SYS_futex);
        if (i % 3 == 1)
            checkpoint();
        MUST(ends(child(posts)) == 0 && sem_wait(answer) == 0);
        sem_t *again = sem_open(name_of[2], 0);
        MUST((again == SEM_FAILED) == unlinked && (!unlinked || errno == ENOENT));
        MUST(sem_post(unlinked ? stock : again) == 0 && sem_getvalue(stock, &value) == 0);
        printf("%d: %d\n", i, value);
    }
    printf("ends %d\n", ends(pid));
    for (int i = 0; i < 3 && !unlinked; i++)
        MUST(sem_unlink(name_of[i]) == 0);
}

/* -- queues --------------------------------------------------------------------------------------------------------------- */

static mqd_t asked, said;

static void receives(void)
{
    char room[8];
    unsigned priority;
    for (int i = 0; i < 9; i++) {
        MUST(mq_receive(asked, room, sizeof room, &priority) == 1);
        room[0] += (char)priority;
        MUST(mq_send(said, room, 1, 9 - (unsigned)i) == 0);
    }
}

static void queues(void)
{
    struct mq_attr how = { .mq_maxmsg = 10, .mq_msgsize = 8 };
    char name[64], room[8];
    snprintf(name, sizeof name, "/metamori-asked-%d", getpid());
    asked = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &how);
    MUST(asked >= 0 && mq_unlink(name) == 0);
    snprintf(name, sizeof name, "/metamori-said-%d", getpid());
    said = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &how);
    MUST(said >= 0);
    pid_t pid = child(receives);
    for (int i = 0; i < 9; i++) {
        await_waiting(pid, SYS_mq_timedreceive);
        if (i % 3 == 1)
            checkpoint();
        MUST(mq_send(asked, "a", 1, (unsigned)i) == 0);
    }
    printf("ends %d\n", ends(pid));
    for (int i = 0; i < 9; i++) {
        MUST(mq_receive(said, room, sizeof room, NULL) == 1);
        printf("%c", room[0]);
    }
    printf("\n");
    MUST(mq_unlink(name) == 0);
}

/* -- mutexes -------------------------------------------------------------------------------------------------------------- */

static struct { pthread_mutex_t mutex; volatile int held, order; } *shared;
static int lends, robust;

static void holds(void)
{
    MUST(pthread_mutex_lock(&shared->mutex) == 0);
    shared->held = 1;
    for (;;)
        pause();
}

static void waits(void)
{
    int r = pthread_mutex_lock(&shared->mutex);
    MUST(r == 0 || r == EOWNERDEAD);
    if (r == EOWNERDEAD)
        MUST(pthread_mutex_consistent(&shared->mutex) == 0);
    int order = ++shared->order;
    MUST(pthread_mutex_unlock(&shared->mutex) == 0);
    _exit(order * 10 + (r == EOWNERDEAD));
}

static void make(void)
{
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
    if (lends)
        pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT);
    if (robust)
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
    MUST(pthread_mutex_init(&shared->mutex, &how) == 0);
    shared->held = shared->order = 0;
}

/* A holder that lends without being robust gives it back itself: nobody would ever get it of one that ended. */
static void mutexes(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    for (int i = 1; i < 4; i++) {
        lends = i & 1, robust = i & 2;
        make();
        pid_t holder = 0;
        if (!robust)
            MUST(pthread_mutex_lock(&shared->mutex) == 0);
        else
            holder = child(holds);
        while (robust && !shared->held)
            usleep(1000);
        pid_t first = child(waits), second = child(waits);
        await_waiting(first, SYS_futex), await_waiting(second, SYS_futex);
        checkpoint();
        if (robust)
            MUST(kill(holder, SIGKILL) == 0 && ends(holder) == -SIGKILL);
        else
            MUST(pthread_mutex_unlock(&shared->mutex) == 0);
        int one = ends(first), other = ends(second);           /* who goes first is not certain */
        printf("%d: %d %d\n", i, one < other ? one : other, one < other ? other : one);
    }
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "named";
    alarm(60);
    unlinked = strcmp(what, "unlinked") == 0;
    strcmp(what, "queue") == 0 ? queues() : strcmp(what, "mutex") == 0 ? mutexes() : semaphores();
    return 0;
}
