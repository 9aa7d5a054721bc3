/* Locks of the process (fcntl, lockf) over an exec: the new program has them, as long as no descriptor of the file was closed. */
#include "say.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>

extern char **environ;
static const char *self;
static char block[9000];

static int waited(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}

/* Who has bytes [0, 10) of the file locked: 0 nobody, 1 the process that asks, 2 another one. */
static int holder(const char *name)
{
    fflush(stdout);
    pid_t asks = getpid(), pid = fork();
    if (!pid) {
        struct flock l = {.l_type = F_WRLCK, .l_len = 10};
        int fd = open(name, O_RDONLY);
        l.l_type = fcntl(fd, F_GETLK, &l) < 0 ? 7 : l.l_type;
        _exit(l.l_type == F_UNLCK ? 0 : l.l_pid == asks ? 1 : 2);
    }
    return waited(pid);
}

static int lock(int fd, int type)
{
    struct flock l = {.l_type = type, .l_len = 10};
    return fcntl(fd, F_SETLK, &l);
}

/* How many descriptors from 0 to 2000 the program has. */
static int open_now(void)
{
    int n = 0;
    for (int fd = 0; fd < 2000; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* held after FD TIMES NAME: the new program. */
static int after(char **word)
{
    int fd = atoi(word[2]), times = atoi(word[3]);
    const char *name = word[4];
    char text[16] = "", times_left[12], *none[] = {NULL};
    printf("-- %s, %d\n", name, times);
    SAY(open_now());
    SAY(holder(name));
    SAY(pwrite(fd, name, strlen(name), 100 * times));
    SAY(pread(fd, text, 15, 100));
    say_bytes("read", text, 15);
    if (times == 2)                    /* in each new program it starts a runtime of its own */
        metamori_checkpoint();
    SAY(pwrite(fd, "over", 4, 4000));
    SAY(ftruncate(fd, 8500));
    SAY(holder(name));
    SAY(execl("not there", "not there", NULL));
    SAY(holder(name));
    snprintf(times_left, sizeof times_left, "%d", times - 1);
    fflush(stdout);
    char *words[] = {(char *)self, "after", word[2], times_left, word[4], NULL};
    if (times == 3)
        execve(self, words, none);     /* an empty environment */
    if (times == 2)
        execl("/bin/sh", "sh", "-c", "exec \"$@\"", "sh", self, "after", word[2], times_left, name, NULL);
    if (times == 1) {
        int other = dup(fd);
        SAY(open_now());
        SAY(close(other));             /* the locks go with any descriptor */
        SAY(holder(name));
        SAY(lock(fd, F_WRLCK));
        SAY(holder(name));
        other = open(name, O_RDONLY | O_CLOEXEC);
        fflush(stdout);
        execv(self, words);            /* closes the other one */
    }
    SAY(lock(fd, F_WRLCK));
    SAY(close(fd));
    SAY(holder(name));
    SAY(open_now());
    fflush(stdout);
    return 0;
}

/* A child that locks its file and then becomes another program, and another. */
static void chain(const char *name, int flags, int type)
{
    int fd = open(name, O_RDWR | O_CREAT, 0644);
    pwrite(fd, block, sizeof block, 0);
    close(fd);
    metamori_checkpoint();
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        char number[12];
        fd = open(name, flags);
        snprintf(number, sizeof number, "%d", fd);
        SAY(lock(fd, type));
        SAY(pwrite(fd, "redirected", 10, 50));
        SAY(holder(name));
        fflush(stdout);
        execl(self, self, "after", number, "3", name, NULL);
        _exit(99);
    }
    SAY(waited(pid));
}

/* A lock by a descriptor that exec closes, and one that is only inherited: neither is the new program's. */
static void not_mine(void)
{
    int fd = open("cloexec", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    pwrite(fd, block, sizeof block, 0);
    metamori_checkpoint();
    SAY(pwrite(fd, "x", 1, 0));
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        SAY(lock(fd, F_WRLCK));
        fflush(stdout);
        execl(self, self, "asks", "cloexec", NULL);
        _exit(99);
    }
    SAY(waited(pid));
    SAY(lock(fd, F_WRLCK));
    fflush(stdout);
    pid = fork();
    if (!pid) {
        execl(self, self, "asks", "cloexec", NULL);
        _exit(99);
    }
    SAY(waited(pid));
    SAY(holder("cloexec"));
    SAY(system("true"));
    SAY(holder("cloexec"));
    SAY(close(fd));
}

/* A reader's lock on a file that nobody had written to; then another process writes to it. */
static void before_it_was_followed(void)
{
    int out[2], fd = open("quiet", O_RDONLY);
    char text[8] = "";
    SAY(lock(fd, F_RDLCK));
    fflush(stdout);
    pipe(out);
    pid_t pid = fork();
    if (!pid) {
        int to = open("quiet", O_RDWR);
        SAY(pwrite(to, "written", 7, 0));
        fflush(stdout);
        write(out[1], "", 1);
        _exit(0);
    }
    read(out[0], text, 1);
    SAY(pread(fd, text, 7, 0));
    say_bytes("quiet", text, 7);
    SAY(holder("quiet"));
    SAY(waited(pid));
    char number[12];
    snprintf(number, sizeof number, "%d", fd);
    fflush(stdout);
    pid = fork();
    if (!pid) {
        SAY(lock(fd, F_RDLCK));
        SAY(holder("quiet"));
        fflush(stdout);
        execl(self, self, "reads", number, NULL);
        _exit(99);
    }
    SAY(waited(pid));
    close(fd), close(out[0]), close(out[1]);
}

static void exercise(void)
{
    memset(block, 'o', sizeof block);
    chain("both", O_RDWR, F_WRLCK);
    chain("write", O_WRONLY, F_WRLCK);
    chain("read", O_RDONLY, F_RDLCK);
    chain("append", O_RDWR | O_APPEND, F_WRLCK);
    not_mine();
    before_it_was_followed();
}

int main(int count, char **word)
{
    self = word[0];
    if (count > 4)
        return after(word);
    if (count > 2 && strcmp(word[1], "asks") == 0)
        return holder(word[2]);
    if (count > 2) {
        char text[8] = "";
        SAY(pread(atoi(word[2]), text, 7, 0));
        say_bytes("quiet", text, 7);
        SAY(holder("quiet"));
        return 0;
    }
    if (access("quiet", F_OK) != 0) {  /* made by somebody else, not written to here */
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
            int fd = open("quiet", O_RDWR | O_CREAT, 0644);
            write(fd, "not yet", 7);
            _exit(0);
        }
        waited(pid);
    }
    return say_rounds(2, exercise);
}
