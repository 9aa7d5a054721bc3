/* Processes that follow one another, and the ways to end one: what each has written must be there for the next. */
#include "say.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static void append(const char *words)
{
    int fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    (void)!write(fd, words, strlen(words));
    close(fd);
}

static void at_exit(void) { append("at exit\n"); }
static void on_signal(int number) { append(number == SIGUSR1 ? "signal 1\n" : "signal 2\n"); }

static int waited(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static void *in_thread(void *words)
{
    for (int i = 0; i < 20; i++)
        append(words);
    return NULL;
}

static void children(void)
{
    int fd = open("shared", O_RDWR | O_CREAT, 0644);
    SAY(write(fd, "parent ", 7));
    pid_t pid = fork();
    if (!pid) {
        (void)!write(fd, "child ", 6);
        FILE *f = fopen("childs own", "w");
        fputs("not closed, left to exit", f);
        atexit(at_exit);
        exit(3);
    }
    SAY(waited(pid));
    SAY(write(fd, "parent again\n", 13));
    SAY(lseek(fd, 0, SEEK_CUR));
    if (!(pid = fork())) {
        dup2(fd, 1);
        execlp("sh", "sh", "-c", "echo by the shell; exec cat log", NULL);
    }
    SAY(waited(pid));
    SAY(lseek(fd, 0, SEEK_CUR));
    if (!(pid = vfork()))
        execl("/bin/sh", "sh", "-c", "echo vfork >> log; exit 4", NULL);
    SAY(waited(pid));
    if (!(pid = fork())) {
        append("before _exit\n");
        _exit(5);
    }
    SAY(waited(pid));
    if (!(pid = fork())) {
        append("before the kill\n");
        kill(getpid(), SIGKILL);
    }
    SAY(waited(pid));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    char *words[] = {"sh", "-c", "echo spawned; echo too >> log", NULL};
    SAY(posix_spawnp(&pid, "sh", &actions, NULL, words, environ));
    SAY(waited(pid));
    posix_spawn_file_actions_destroy(&actions);
    SAY(close(fd));
}

static void exercise(void)
{
    append("start\n");
    children();
    SAY(system("echo system >> log; mv 'childs own' kept; rm -f gone; echo x > gone"));
    signal(SIGUSR1, on_signal);
    signal(SIGUSR2, on_signal);
    SAY(raise(SIGUSR1));
    SAY(raise(SIGUSR2));
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, in_thread, "same words\n");
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    int fd = open("log", O_RDONLY);
    static char all[20000];
    SAY(read(fd, all, sizeof all));
    SAY(close(fd));
}

int main(void) { return say_rounds(2, exercise); }
