/* much.c - two processes that have one of each: when they are back, they use all of it and end.
 *
 * What has a name in the system is made with a random number (those of killed processes come again), and gone at the end. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <metamori.h>
#include <mqueue.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

static char name[64];
static int down[2], up[2], pair[2], client, served, listener, events, set, file, fifo, named;
static struct { uint32_t number; sem_t asked; } *shared;
static uint32_t *memory, *segment;
static sem_t *semaphore;
static mqd_t queue;
static int shm, sem, msg;
struct message { long type; char text[8]; };

static void make_all(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_un here = { .sun_family = AF_UNIX, .sun_path = "socket" };
    socklen_t length = sizeof at;
    key_t key;
    MUST(getrandom(&key, sizeof key, 0) == sizeof key);
    key |= 1;                    /* not IPC_PRIVATE */
    snprintf(name, sizeof name, "/metamori-much-%08x", (unsigned)key);
    MUST(pipe(down) == 0 && pipe(up) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    MUST((listener = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && bind(listener, (void *)&at, sizeof at) == 0);
    MUST(listen(listener, 3) == 0 && getsockname(listener, (void *)&at, &length) == 0);
    MUST((client = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && connect(client, (void *)&at, sizeof at) == 0);
    MUST((served = accept(listener, NULL, NULL)) >= 0 && write(client, "tcp", 3) == 3);
    MUST((named = socket(AF_UNIX, SOCK_DGRAM, 0)) >= 0 && bind(named, (void *)&here, sizeof here) == 0);
    MUST((events = eventfd(3, 0)) >= 0 && (set = epoll_create1(0)) >= 0);
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, events, &(struct epoll_event){ EPOLLIN, { .u32 = 17 } }) == 0);
    MUST((file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0 && write(file, "begin\n", 6) == 6);
    MUST(mkfifo("fifo", 0600) == 0 && (fifo = open("fifo", O_RDWR)) >= 0 && write(fifo, "fifo", 4) == 4);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED && sem_init(&shared->asked, 1, 0) == 0);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    MUST(fd >= 0 && ftruncate(fd, 4096) == 0);
    memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(memory != MAP_FAILED && close(fd) == 0);
    semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    MUST(semaphore != SEM_FAILED);
    queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &(struct mq_attr){ .mq_maxmsg = 3, .mq_msgsize = 8 });
    MUST(queue >= 0 && mq_send(queue, "queued", 6, 4) == 0);
    MUST((shm = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600)) >= 0 && (segment = shmat(shm, NULL, 0)) != (void *)-1);
    MUST((sem = semget(key, 2, IPC_CREAT | IPC_EXCL | 0600)) >= 0 && semctl(sem, 1, SETVAL, 5) == 0);
    MUST((msg = msgget(key, IPC_CREAT | IPC_EXCL | 0600)) >= 0);
    MUST(msgsnd(msg, &(struct message){ 2, "sysv" }, 5, 0) == 0);
    *memory = 40, *segment = 50;
}

static void remove_all(void)
{
    MUST(shm_unlink(name) == 0 && sem_unlink(name) == 0 && mq_unlink(name) == 0 && unlink("socket") == 0 && unlink("fifo") == 0);
    MUST(shmctl(shm, IPC_RMID, NULL) == 0 && semctl(sem, 0, IPC_RMID) == 0 && msgctl(msg, IPC_RMID, NULL) == 0);
}

static uint32_t asked(uint32_t add)
{
    uint32_t x;
    MUST(read(down[0], &x, sizeof x) == sizeof x);
    *memory += x, *segment += x, shared->number += x;
    x = x * 31 + add;
    MUST(write(up[1], &x, sizeof x) == sizeof x);
    return x;
}

static int child(void)
{
    uint32_t own = 7;
    char room[16];
    MUST(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0);
    if (fork() == 0)
        _exit(6);                          /* nobody waits for it before the end */
    for (int i = 0; i < 2; i++)
        own = asked(own);
    MUST(sem_wait(semaphore) == 0 && sem_wait(&shared->asked) == 0);
    MUST(semop(sem, &(struct sembuf){ 0, -1, 0 }, 1) == 0);
    MUST(write(file, "child\n", 6) == 6 && recv(pair[1], room, sizeof room, 0) == 4 && write(client, "end", 3) == 3);
    int status;
    MUST(wait(&status) > 0 && WEXITSTATUS(status) == 6);
    return (int)(own & 63);
}

static uint32_t by_child(uint32_t x)
{
    MUST(write(down[1], &x, sizeof x) == sizeof x && read(up[0], &x, sizeof x) == sizeof x);
    return x;
}

int main(void)
{
    struct message message;
    struct epoll_event event;
    char room[20] = "";
    int status;
    alarm(40);
    make_all();
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0)
        _exit(child());
    MUST(close(up[1]) == 0 && close(down[0]) == 0);            /* of a child that was killed there is nothing to wait for */
    printf("%u\n", by_child(3));
    MUST(write(file, "parent\n", 7) == 7 && send(pair[0], "pair", 4, 0) == 4);
    fflush(stdout);
    metamori_checkpoint();
    printf("%u %u %u %u\n", by_child(4), *memory, *segment, shared->number);
    MUST(sem_post(semaphore) == 0 && sem_post(&shared->asked) == 0 && semop(sem, &(struct sembuf){ 0, 1, 0 }, 1) == 0);
    MUST(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    MUST(recv(served, room, 6, MSG_WAITALL) == 6 && read(fifo, room + 6, 4) == 4 && mq_receive(queue, room + 10, 8, NULL) == 6);
    MUST(msgrcv(msg, &message, 8, 0, 0) == 5 && epoll_wait(set, &event, 1, 0) == 1 && event.data.u32 == 17);
    printf("%d %.16s %s %d\n", WEXITSTATUS(status), room, message.text, semctl(sem, 1, GETVAL));
    MUST(write(file, "end\n", 4) == 4);
    remove_all();
    return 5;
}
