/* sysv.c - two processes and their objects of System V; what is printed depends on nothing but themselves.
 *
 *   sysv private      as work, but nothing has a key
 *   sysv work         semaphores that pass a turn, a queue that fills up, memory that is mapped, removed, or mapped by nobody
 *   sysv undo|part|mode       what cannot come back: SEM_UNDO; memory mapped in part; an object that its owner may not read
 *   sysv new          many objects that are made and removed */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEPS 60
#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

struct message { long type; char text[3000]; };
static int turn, queue, mapped, removed, unmapped;
static uint32_t *common, *gone;

static uint32_t work(uint32_t state)
{
    for (int i = 0; i < 3000000; i++)
        state = state * 1664525u + 1013904223u;
    return state;
}

static void change(int which, int by)
{
    struct sembuf operation = { (unsigned short)which, (short)by, 0 };
    MUST(semop(turn, &operation, 1) == 0);
}

static void timed(int which)
{
    struct sembuf operation = { (unsigned short)which, -1, 0 };
    struct timespec time = { 1000, 0 };
    MUST(semtimedop(turn, &operation, 1, &time) == 0);
}

static int child(void)
{
    struct message m = { 0 };
    uint32_t sum = 0;
    for (int i = 0; i < STEPS; i++) {
        timed(1);
        common[1] = work(common[0] + common[1]);
        gone[i] = common[1];
        change(0, 1);
        if (i < STEPS / 2)
            continue;
        ssize_t n = msgrcv(queue, &m, sizeof m.text, 0, 0);
        MUST(n == 1000 + m.type);
        sum = sum * 31 + (uint32_t)m.text[n - 1] + (uint32_t)m.type;
    }
    common[2] = sum;
    return 7;
}

static int is_private;
static key_t key;           /* it and the next are nobody's: numbers of processes come again, and a killed one leaves its objects */
static void make(void)
{
    MUST(is_private || getrandom(&key, sizeof key, 0) == sizeof key);
    key = is_private ? IPC_PRIVATE : (key & 0x7ffffffe) | 2;
    MUST((turn = semget(key, 3, IPC_CREAT | IPC_EXCL | 0600)) >= 0 && (queue = msgget(key, IPC_CREAT | IPC_EXCL | 0640)) >= 0);
    MUST((mapped = shmget(key, 9000, IPC_CREAT | IPC_EXCL | 0600)) >= 0);
    MUST((removed = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600)) >= 0 && (unmapped = shmget(key ? key + 1 : key, 300012, IPC_CREAT | 0600)) >= 0);
    common = shmat(mapped, NULL, 0), gone = shmat(removed, NULL, 0);
    char *once = shmat(unmapped, NULL, 0);
    MUST(common != (void *)-1 && gone != (void *)-1 && once != (void *)-1 && shmctl(removed, IPC_RMID, NULL) == 0);
    strcpy(once + 200000, "left there");
    MUST(shmdt(once) == 0 && semctl(turn, 0, SETVAL, 1) == 0 && semctl(turn, 2, SETVAL, 5) == 0);
}

static void remove_all(void)
{
    MUST(semctl(turn, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0);
    MUST(shmctl(mapped, IPC_RMID, NULL) == 0 && shmctl(unmapped, IPC_RMID, NULL) == 0);
    MUST(semctl(turn, 0, GETVAL) == -1 && errno == EINVAL);
}

static void passes_turns(void)
{
    make();
    struct message m = { 0 };
    struct shmid_ds state;
    struct semid_ds semaphores;
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(child());
    for (int i = 0; i < STEPS; i++) {
        change(0, -1);
        common[0] = work(common[0] + common[1] + (uint32_t)i);
        printf("%d %u\n", i, common[0]);
        m.type = i % 3 + 1;
        memset(m.text, 'a' + i % 26, sizeof m.text);
        if (i < STEPS / 2)                 /* until it is full; then each waits until one was taken */
            MUST(msgsnd(queue, &m, (size_t)(1000 + m.type), IPC_NOWAIT) == 0 || errno == EAGAIN);
        change(1, 1);
        if (i >= STEPS / 2)
            MUST(msgsnd(queue, &m, (size_t)(1000 + m.type), 0) == 0);
        if (i % 10 == 0)
            usleep(1000);
    }
    MUST(waitpid(pid, &status, 0) == pid);
    uint32_t sum = 0;
    for (int i = 0; i < STEPS; i++)
        sum = sum * 31 + gone[i];
    char *once = shmat(unmapped, NULL, SHM_RDONLY);
    MUST(once != (void *)-1 && shmctl(removed, IPC_STAT, &state) == 0 && state.shm_nattch == 1);
    MUST(semctl(turn, 0, IPC_STAT, &semaphores) == 0 && semaphores.sem_nsems == 3);
    MUST(is_private || (semget(key, 3, 0) == turn && msgget(key, 0) == queue && shmget(key, 0, 0) == mapped));
    printf("%d %u %u %s %d\n", WEXITSTATUS(status), sum, common[2], once + 200000, semctl(turn, 2, GETVAL));
    MUST(shmdt(once) == 0);
    remove_all();
}

static void waits(void)
{
    puts("ready");
    fflush(stdout);
    while (access("go", F_OK) != 0)
        usleep(20000);
}

static void cannot(const char *what)
{
    make();
    if (strcmp(what, "undo") == 0)
        MUST(semop(turn, &(struct sembuf){ 0, -1, SEM_UNDO }, 1) == 0);
    if (strcmp(what, "part") == 0)
        MUST(munmap((char *)common + 4096, 4096) == 0);
    if (strcmp(what, "mode") == 0) {
        struct msqid_ds state;
        MUST(msgctl(queue, IPC_STAT, &state) == 0);
        state.msg_perm.mode = 0200;
        MUST(msgctl(queue, IPC_SET, &state) == 0);
    }
    waits();
    remove_all();
    puts("done");
}

static void makes_new(void)
{
    for (int i = 0; i < 3000; i++) {
        int semaphores = semget(IPC_PRIVATE, 1, 0600), other = msgget(IPC_PRIVATE, 0600), memory = shmget(IPC_PRIVATE, 4096, 0600);
        MUST(semaphores >= 0 && other >= 0 && memory >= 0 && semctl(semaphores, 0, IPC_RMID) == 0);
        MUST(msgctl(other, IPC_RMID, NULL) == 0 && shmctl(memory, IPC_RMID, NULL) == 0);
        if (i % 100 == 0)
            printf("%u\n", work((uint32_t)i));
    }
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *what = count > 1 ? words[1] : "work";
    is_private = strcmp(what, "private") == 0;
    strcmp(what, "work") == 0 || is_private ? passes_turns() : strcmp(what, "new") == 0 ? makes_new() : cannot(what);
    return 0;
}
