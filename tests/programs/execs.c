/* Every way to start a program, with descriptors that stay open and descriptors that do not: as without Metamori. */
#include "say.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
static const char *self;
static char number[12], closed[12], step[12];

/* The new program: writes at the shared position, finds the other descriptor closed, reads what was overwritten. */
static int started(char **word)
{
    char text[64] = "", line[128];
    int fd = atoi(word[2]), gone = atoi(word[3]);
    off_t at = lseek(fd, 0, SEEK_CUR);
    int n = snprintf(line, sizeof line, "<%s at %lld, %s, %s>", word[4], (long long)at,
                     fcntl(gone, F_GETFD) < 0 ? "closed" : "open", getenv("MINE") ? getenv("MINE") : "-");
    if (write(fd, line, n) != n)
        return 1;
    int old = open("old", O_RDWR);
    if (read(old, text, 8) != 8)
        return 2;
    pwrite(old, word[4], strlen(word[4]), 4000);
    text[8] = '>';
    return write(fd, text, 9) == 9 ? 10 + environ[0] == NULL : 3;
}

static int waited(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

#define WORDS(name) {(char *)self, "started", number, closed, name, NULL}
#define CHILD(name, call)                                                                                      \
    do {                                                                                                       \
        char *words[] = WORDS(name);                                                                           \
        (void)words;                                                                                           \
        snprintf(step, sizeof step, "%.8s", name);                                                             \
        pwrite(old, step, 8, 0);                                                                               \
        pid_t pid = fork();                                                                                    \
        if (!pid) {                                                                                            \
            call;                                                                                              \
            _exit(99);                                                                                         \
        }                                                                                                      \
        SAY(waited(pid));                                                                                      \
        SAY(lseek(fd, 0, SEEK_CUR));                                                                           \
    } while (0)

static void exercise(void)
{
    int fd = open("log", O_RDWR | O_CREAT, 0644), old = open("old", O_RDWR | O_CREAT, 0644);
    int other = open("old", O_RDWR | O_CLOEXEC), here = open(".", O_RDONLY | O_DIRECTORY);
    int image = open(self, O_RDONLY);
    char *none[] = {NULL}, *mine[] = {"MINE=mine", NULL};
    char command[400];
    static char block[8000];
    if (pread(old, block, 1, 7999) < 1)
        pwrite(old, memset(block, 'o', sizeof block), sizeof block, 0);
    lseek(fd, 0, SEEK_END);
    snprintf(number, sizeof number, "%d", fd);
    snprintf(closed, sizeof closed, "%d", other);
    SAY(write(fd, "begin ", 6));
    CHILD("execve  ", execve(self, words, environ));
    CHILD("execv   ", execv(self, words));
    CHILD("execvp  ", execvp(self, words));
    CHILD("execvpe ", execvpe(self, words, mine));
    CHILD("execl   ", execl(self, self, "started", number, closed, "execl   ", NULL));
    CHILD("execlp  ", execlp(self, self, "started", number, closed, "execlp  ", NULL));
    CHILD("execle  ", execle(self, self, "started", number, closed, "execle  ", NULL, mine));
    CHILD("fexecve ", fexecve(image, words, mine));
    CHILD("execveat", execveat(here, self, words, mine, 0));
    CHILD("no envir", execve(self, words, none));
    CHILD("twice   ", execl("/bin/sh", "sh", "-c", "exec \"$@\"", "sh", self, "started", number, closed, "twice   ", NULL));
    CHILD("not here", execv("./not there", words));
    CHILD("no rights", execv("log", words));
    snprintf(command, sizeof command, "exec %s started %s %s system", self, number, closed);
    SAY(system(command));
    snprintf(command, sizeof command, "%s started %s %s popen; cat old | tail -c 10 | tr -d '\\n'", self, number, closed);
    FILE *f = popen(command, "r");
    SAY(fgets(command, sizeof command, f) != NULL);
    SAY(pclose(f));
    char *words[] = WORDS("spawn   ");
    pid_t pid;
    SAY(posix_spawn(&pid, self, NULL, NULL, words, mine));
    SAY(waited(pid));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 77);
    posix_spawn_file_actions_addclose(&actions, fd);
    char *moved[] = {(char *)self, "started", "77", closed, "moved   ", NULL};
    SAY(posix_spawn(&pid, self, &actions, NULL, moved, none));
    SAY(waited(pid));
    posix_spawn_file_actions_destroy(&actions);
    int extra = dup(fd);               /* closed here before the child can look at it */
    snprintf(number, sizeof number, "%d", extra);
    char *left[] = WORDS("left    ");
    SAY(posix_spawn(&pid, self, NULL, NULL, left, environ));
    close(extra);
    SAY(waited(pid));
    SAY(posix_spawn(&pid, "./not there", NULL, NULL, words, environ));
    SAY(write(fd, " end\n", 5));
    close(fd), close(old), close(other), close(here), close(image);
}

int main(int count, char **word)
{
    self = word[0];
    if (count > 1)
        return started(word);
    return say_rounds(3, exercise);
}
