/* tree.c - processes that share and wait: what they print depends on nothing but themselves, also after they were brought back.
 *
 *   tree kin | memory | files        one kind of thing each, in STEPS steps of some milliseconds
 *   tree churn                       has children all the time that end, are killed, become other programs, have children
 *   tree back                        goes back to its own checkpoint once, with its child and what is on its way to it
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <metamori.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS 40
#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

static uint32_t work(uint32_t state)
{
    for (int i = 0; i < 3000000; i++)
        state = state * 1664525u + 1013904223u;
    return state;
}

/* -- kin: numbers, ends, groups, signals ------------------------------------------------------------------------------ */

static volatile sig_atomic_t came;
static volatile pid_t from;
static void handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    from = info->si_pid;
    came++;
}

static pid_t child(int (*run)(int), int argument)
{
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        int status = run(argument);
        fflush(stdout);
        _exit(status);
    }
    return pid;
}

static int ends(int status) { return status; }
static int works(int n)
{
    pid_t parent = getppid();
    uint32_t state = (uint32_t)n;
    for (int i = 0; i < n; i++)
        state = work(state);
    MUST(getppid() == parent);
    return (int)(state >> 8 & 63);
}
static int waits_for_own(int n)
{
    pid_t grandchild = child(works, n);
    int status;
    MUST(waitpid(grandchild, &status, 0) == grandchild);
    return WEXITSTATUS(status) + 1;
}
static int in_own_group(int n)
{
    MUST(setpgid(0, 0) == 0 && getpgrp() == getpid());
    pid_t a = child(works, n);
    MUST(getpgid(a) == getpid());
    int status = works(n / 2), other;
    MUST(waitpid(-getpgrp(), &other, 0) == a && getpgrp() == getpid());
    return (status + WEXITSTATUS(other)) & 63;
}
static int in_own_session(int n)
{
    MUST(setsid() == getpid());
    pid_t a = child(works, n);
    int other;
    works(n);
    MUST(getsid(0) == getpid() && getsid(a) == getpid() && wait(&other) == a);
    return WEXITSTATUS(other);
}
static int signals_parent(int n)
{
    for (int i = 0; i < n; i++) {
        works(1);
        MUST(kill(getppid(), SIGUSR1) == 0);
    }
    return 5;
}
static int sleeps(int n) { for (;;) pause(); return n; }

static void kin(void)
{
    struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART };
    sigaction(SIGUSR1, &action, NULL);
    pid_t ended = child(ends, 7), killed = child(sleeps, 0), late = child(sleeps, 0);
    MUST(kill(killed, SIGKILL) == 0);
    siginfo_t info;
    MUST(waitid(P_PID, (id_t)killed, &info, WEXITED | WNOWAIT) == 0);
    pid_t nested = child(waits_for_own, STEPS), group = child(in_own_group, STEPS), session = child(in_own_session, STEPS / 2);
    int status;
    uint32_t state = 1;
    for (int i = 0; i < STEPS; i++) {
        state = work(state);
        MUST(waitpid(late, &status, WNOHANG) == 0);
        printf("%d %u\n", i, state);
        if (i % 10 == 9) {
            FILE *p = popen("awk 'BEGIN { for (i = 0; i < 900000; i++) s += i % 7; print s; exit 3 }'", "r");
            char line[64];
            MUST(p && fgets(line, sizeof line, p));
            status = pclose(p);
            printf("popen %d %s", WEXITSTATUS(status), line);
            fflush(stdout);
            status = system("awk 'BEGIN { for (i = 0; i < 900000; i++) s += i % 5; print s; exit 4 }'");
            printf("system %d\n", WEXITSTATUS(status));
        }
    }
    pid_t talks = child(signals_parent, 10);
    MUST(waitpid(talks, &status, 0) == talks && came > 0 && from == talks);
    printf("nested %d", waitpid(nested, &status, 0) == nested ? WEXITSTATUS(status) : -1);
    printf(" group %d", waitpid(group, &status, 0) == group ? WEXITSTATUS(status) : -1);
    printf(" session %d", wait4(session, &status, 0, NULL) == session ? WEXITSTATUS(status) : -1);
    printf(" ended %d", waitpid(ended, &status, 0) == ended ? WEXITSTATUS(status) : -1);
    printf(" killed %d", waitpid(killed, &status, 0) == killed ? WTERMSIG(status) : -1);
    MUST(kill(late, SIGTERM) == 0 && waitid(P_ALL, 0, &info, WEXITED) == 0 && info.si_pid == late);
    printf(" late %d, %d\n", info.si_status, wait(NULL) == -1 && errno == ECHILD);
}

/* -- churn: children that come and go ------------------------------------------------------------------------------------- */

static int has_one(int n)
{
    int status;
    pid_t pid = child(ends, n);
    MUST(waitpid(pid, &status, 0) == pid);
    return WEXITSTATUS(status);
}
static int becomes(int n)
{
    char text[16];
    snprintf(text, sizeof text, "%d", n);
    execl("/bin/sh", "sh", "-c", "exit $0", text, NULL);
    return 99;
}

static void churn(void)
{
    int (*kinds[])(int) = { ends, has_one, becomes, sleeps };
    uint32_t state = 1, sum = 0;
    for (int i = 0; i < 400; i++) {
        int status, kind = i % 4, number = i % 60;
        pid_t pid = child(kinds[kind], number);
        for (int k = 0; k < 100000; k++)
            state = state * 1664525u + 1013904223u;
        if (kind == 3)
            MUST(kill(pid, SIGKILL) == 0);
        MUST(waitpid(pid, &status, 0) == pid);
        MUST(kind == 3 ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == number);
        sum = sum * 31 + (uint32_t)status;
        if (i % 10 == 0)
            printf("%d %u %u\n", i, state, sum);
    }
}

/* -- memory: shared mappings and what lies in them ----------------------------------------------------------------------- */

struct common {
    pthread_mutex_t mutex;
    pthread_cond_t turned;
    sem_t room;
    uint32_t turn, state, log[8192];
};

static struct common *mapped(int fd, size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
    MUST(p != MAP_FAILED);
    return p;
}

static struct common *parts[3];
static int memory_file;

static int takes_turns(int me)
{
    for (int step = 0; step < STEPS; step++)
        for (int p = 0; p < 3; p++) {
            struct common *c = parts[p];
            MUST(pthread_mutex_lock(&c->mutex) == 0);
            while (c->turn % 3 != (uint32_t)me)
                pthread_cond_wait(&c->turned, &c->mutex);
            uint32_t number = c->turn++;
            c->state = work(c->state + (uint32_t)me);
            c->log[number] = c->state;
            pthread_cond_broadcast(&c->turned);
            pthread_mutex_unlock(&c->mutex);
            sem_post(&c->room);
        }
    char text[32];
    int n = snprintf(text, sizeof text, "end of %d\n", me);
    MUST(pwrite(memory_file, text, (size_t)n, 100000 + 32 * me) == n);      /* of what nobody has mapped */
    return me;
}

static void memory(void)
{
    memory_file = memfd_create("file", 0);
    char name[64];
    snprintf(name, sizeof name, "/metamori-test-%d", getpid());
    int named = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    MUST(memory_file >= 0 && named >= 0 && ftruncate(memory_file, 200000) == 0 && ftruncate(named, sizeof(struct common)) == 0);
    parts[0] = mapped(-1, sizeof(struct common));
    parts[1] = mapped(memory_file, sizeof(struct common));
    parts[2] = mapped(named, sizeof(struct common));
    MUST(pwrite(memory_file, "begin", 5, 150000) == 5);
    for (int p = 0; p < 3; p++) {
        pthread_mutexattr_t shared;
        pthread_condattr_t too;
        pthread_mutexattr_init(&shared), pthread_condattr_init(&too);
        pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED), pthread_condattr_setpshared(&too, PTHREAD_PROCESS_SHARED);
        pthread_mutex_init(&parts[p]->mutex, &shared), pthread_cond_init(&parts[p]->turned, &too);
        sem_init(&parts[p]->room, 1, 0);
    }
    pid_t children[2] = { child(takes_turns, 1), child(takes_turns, 2) };
    takes_turns(0);
    for (int i = 0; i < 2; i++) {
        int status;
        MUST(waitpid(children[i], &status, 0) == children[i] && WEXITSTATUS(status) == i + 1);
    }
    for (int p = 0; p < 3; p++) {
        int posts = 0;
        uint32_t sum = 0;
        for (int i = 0; i < 3 * STEPS; i++)
            sum = sum * 31 + parts[p]->log[i], posts += sem_trywait(&parts[p]->room) == 0;
        printf("%u %u %d\n", parts[p]->turn, sum, posts);
    }
    char text[160] = "", again[8] = "";
    MUST(pread(memory_file, text, 96, 100000) == 96 && pread(memory_file, again, 5, 150000) == 5);
    printf("%s%s%s%s\n", text, text + 32, text + 64, again);
    int reopened = shm_open(name, O_RDWR, 0);
    MUST(reopened >= 0);
    printf("%u\n", mapped(reopened, sizeof(struct common))->turn);
    shm_unlink(name);
}

/* -- files: descriptions that several have, with what is on its way ------------------------------------------------------- */

static int log_file, full_pipe[2], stream[2], packets[2], events, fifo_end, server;

static int writes(int n)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX, .sun_path = "socket" };
    char line[512];
    uint32_t state = 9;
    close(full_pipe[0]), close(stream[0]), close(packets[0]);
    int connection = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(connect(connection, (struct sockaddr *)&at, sizeof at) == 0);
    for (int i = 0; i < n; i++) {
        state = work(state);
        memset(line, 'a' + (int)(state >> 8 & 15), sizeof line);
        line[sizeof line - 1] = '\n';
        for (int k = 0; k < 40; k++)               /* more than the reader has taken by then: it fills up */
            MUST(write(full_pipe[1], line, sizeof line) == sizeof line);
        MUST(write(stream[1], line, 100) == 100 && send(packets[1], line, (size_t)i + 1, 0) == i + 1);
        MUST(write(fifo_end, line, 64) == 64 && write(log_file, line + sizeof line - 9, 9) == 9);
        MUST(send(connection, line, 3, 0) == 3);
        uint64_t one = 1;
        MUST(write(events, &one, sizeof one) == sizeof one);
    }
    MUST(lseek(log_file, 0, SEEK_CUR) == 9 * n);
    return 11;
}

static void get(int fd, void *to, size_t n)
{
    for (size_t had = 0; had < n;) {
        ssize_t r = read(fd, (char *)to + had, n - had);
        MUST(r > 0);
        had += (size_t)r;
    }
}

static void files(void)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX, .sun_path = "socket" };
    static char line[65536];
    uint32_t sum = 0;
    MUST((log_file = open("log", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0 && pipe(full_pipe) == 0 && mkfifo("fifo", 0600) == 0);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets) == 0);
    MUST((events = eventfd(0, 0)) >= 0 && (fifo_end = open("fifo", O_RDWR)) >= 0);
    MUST((server = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0 && bind(server, (struct sockaddr *)&at, sizeof at) == 0);
    MUST(listen(server, 5) == 0);
    pid_t pid = child(writes, STEPS);
    close(full_pipe[1]), close(stream[1]), close(packets[1]);
    int connection = accept(server, NULL, NULL), status;
    MUST(connection >= 0);
    for (int i = 0; i < STEPS; i++) {
        for (int k = 0; k < 40; k++) {
            get(full_pipe[0], line, 512);
            sum = sum * 31 + (unsigned char)line[k];
            if (k % 10 == 0)
                sum = work(sum);
        }
        get(stream[0], line, 100);
        sum = sum * 31 + (unsigned char)line[1];
        ssize_t n = recv(packets[0], line, sizeof line, 0);
        MUST(n == i + 1);
        get(fifo_end, line, 64);
        get(connection, line + 64, 3);
        sum = sum * 31 + (unsigned char)line[0] + (unsigned char)line[65];
        printf("%d %u\n", i, sum);
    }
    uint64_t count;
    MUST(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 11);
    MUST(read(events, &count, sizeof count) == sizeof count && read(full_pipe[0], line, 1) == 0 && read(stream[0], line, 1) == 0);
    printf("%lu %ld\n", (unsigned long)count, (long)lseek(log_file, 0, SEEK_CUR));
    unlink("socket"), unlink("fifo");
}

/* -- back: a rollback from inside takes all of it ------------------------------------------------------------------------- */

static int answers(int from, int to, int *shared)
{
    FILE *log = fopen("child", "w");
    int sum = 0;
    for (char c; read(from, &c, 1) == 1;) {
        *shared = sum = sum * 31 + c;
        fprintf(log, "%d\n", sum);
        fflush(log);
        MUST(write(to, &sum, sizeof sum) == sizeof sum);
    }
    return 9;
}

static void back(void)
{
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), ask[2], say[2];
    int sum, own = 0, first = 0, tried = 0, status;
    MUST(pipe(ask) == 0 && pipe(say) == 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(ask[1]), close(say[0]);
        _exit(answers(ask[0], say[1], shared));
    }
    close(ask[0]), close(say[1]);
    for (int i = 0; i < 6; i++) {
        MUST(write(ask[1], &"abcdef"[i], 1) == 1 && read(say[0], &sum, sizeof sum) == sizeof sum);
        own += *shared;
        if (i == 4 && first > 0 && !tried)
            metamori_restore(first);
        if (i == 1) {
            MUST(write(ask[1], "x", 1) == 1);
            int index = metamori_checkpoint();
            tried = index == 0;
            first = index > 0 ? index : first;
            MUST(read(say[0], &sum, sizeof sum) == sizeof sum);
        }
    }
    close(ask[1]);
    MUST(waitpid(pid, &status, 0) == pid);
    printf("tried %d, %d %d\n", tried, WEXITSTATUS(status), own);
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *what = count > 1 ? words[1] : "kin";
    strcmp(what, "memory") == 0 ? memory() : strcmp(what, "files") == 0 ? files() : strcmp(what, "back") == 0 ? back()
        : strcmp(what, "churn") == 0 ? churn() : kin();
    return 0;
}
