/* Children of vfork: each case natively and under Metamori, the same lines and the same files.
 *   vforked CASE     in a folder as corners.h has it */
#include "corners.h"
#include <sys/resource.h>
#include <sys/wait.h>

static volatile int stored;
static int status;

/* The child does what follows, and ends or executes a program; the parent goes on then. */
#define IN_CHILD(what) do { pid_t p_ = vfork(); if (p_ == 0) { what; _exit(stored & 255); } SAY(p_ > 0); \
        SAY(waitpid(p_, &status, 0) == p_); SAY(status); } while (0)
#define SHELL(text) execl("/bin/sh", "sh", "-c", text, NULL)

static void case_memory_is_shared(void)
{
    IN_CHILD(stored = 7);
    SAY(stored);
    IN_CHILD({ execl("/nowhere", "nowhere", NULL); stored = errno; });
    SAY(stored == ENOENT);
    SAY(errno == ENOENT);
    stored = 1;
    IN_CHILD(SHELL("exit 3"));
    pid_t child = vfork();
    if (child == 0) {
        usleep(200000);
        stored = 2;
        _exit(0);
    }
    SAY(stored);                       /* it has waited */
    SAY(waitpid(child, NULL, 0) == child);
}

static void case_descriptors_are_not(void)
{
    scatter(fd);
    int more = open("twin", O_RDWR | O_APPEND);
    lseek(fd, 100, SEEK_SET);
    IN_CHILD({ close(fd); stored = dup2(more, fd); write(fd, "appended", 8); fcntl(more, F_SETFD, FD_CLOEXEC); close_range(20, 30, 0);
               dup2(more, 25); });
    SAY(write(fd, "in the parent", 13));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(more, 0, SEEK_CUR));
    SAY(fcntl(more, F_GETFD));
    SAY(fcntl(25, F_GETFD));
    IN_CHILD({ write(fd, "in the child", 12); lseek(more, 5, SEEK_SET); });
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(more, 0, SEEK_CUR));
    IN_CHILD({ closefrom(3); stored = open("new", O_RDWR | O_CREAT, 0600); write(stored, "new", 3); });
    SAY(fcntl(fd, F_GETFD));
    SAY(open("new", O_RDWR));
    IN_CHILD({ for (int n = 3; n < 1100; n++) if (n != fd && n != more) dup2(fd, n); rename("new", "newer"); });
    SAY(pwrite(fd, room, SIZE, SIZE));
    SAY(rename("newer", "new"));
    metamori_checkpoint();
    SAY(pwrite(fd, "later", 5, SIZE));
    SAY(unlink("two/a"));
    sums("old");
    sums("twin");
    sums("new");
}

static void case_names(void)
{
    IN_CHILD({ rename("one", "three"); unlink("two/a"); mkdir("four", 0700); symlink("old", "four/link"); truncate("twin", 5000); });
    SAY(chdir("three"));
    IN_CHILD({ chdir("../two"); stored = open("b", O_WRONLY | O_TRUNC); write(stored, "short", 5); });
    SAY(unlink("a"));
    SAY(rename("b", "b2"));
    SAY(chdir(".."));
    metamori_checkpoint();
    IN_CHILD({ chmod("old", 0444); link("old", "again"); rename("four", "five"); pwrite(fd, "later", 5, 9); });
    metamori_checkpoint();
    sums("again");
    sums("twin");
}

static void case_signals_and_limits(void)
{
    struct sigaction now;
    struct rlimit limit = { 20000, RLIM_INFINITY };
    signal(SIGUSR1, count);
    IN_CHILD({ signal(SIGUSR1, SIG_IGN); signal(SIGUSR2, count); setrlimit(RLIMIT_FSIZE, &limit); umask(077); });
    SAY(sigaction(SIGUSR1, NULL, &now));
    SAY(now.sa_handler == count);
    SAY(sigaction(SIGUSR2, NULL, &now));
    SAY(now.sa_handler == SIG_DFL);
    SAY(raise(SIGUSR1));
    SAY(caught);
    IN_CHILD(raise(SIGUSR1));
    SAY(caught);
    SAY(pwrite(fd, "behind", 6, 30000));
    SAY(umask(022));
    IN_CHILD({ pwrite(fd, "child", 5, 40000); kill(getpid(), SIGKILL); });
    SAY(pwrite(fd, "parent", 6, 40003));
    SAY(setrlimit(RLIMIT_FSIZE, &limit));
    signal(SIGXFSZ, SIG_IGN);
    IN_CHILD({ limit.rlim_cur = 300; setrlimit(RLIMIT_FSIZE, &limit); stored = open("new", O_WRONLY | O_CREAT, 0600);
               stored = write(stored, room, 1000) == 300; });
    SAY(pwrite(fd, "x", 1, 19999));
    SAY(pwrite(fd, "x", 1, 20000));
    sums("old");
}

static void case_programs_one_after_another(void)
{
    lseek(fd, 0, SEEK_SET);
    for (int i = 0; i < 40; i++) {
        IN_CHILD({ dup2(fd, 1); SHELL("echo line; echo more >> log"); });
        if (i == 20)
            metamori_checkpoint();
        SAY(write(fd, "-", 1));
    }
    SAY(lseek(fd, 0, SEEK_CUR));
    sums("log");
    sums("old");
}

static void case_one_in_another(void)
{
    IN_CHILD({ pid_t inner = vfork();
               if (inner == 0) { close(fd); int f = open("inner", O_WRONLY | O_CREAT, 0600); write(f, "inner", 5); _exit(5); }
               waitpid(inner, &status, 0); stored = WEXITSTATUS(status); write(fd, "outer", 5); });
    SAY(stored);
    IN_CHILD({ pid_t inner = fork();
               if (inner == 0) { close(fd); int f = open("forked", O_WRONLY | O_CREAT, 0600); write(f, "forked", 6); SHELL("echo >> forked"); }
               waitpid(inner, &status, 0); stored = WEXITSTATUS(status); write(fd, "again", 5); });
    SAY(stored);
    SAY(fork() ? wait(&status) > 0 : (write(fd, "twice", 5), _exit(0), 0));
    sums("old");
    sums("forked");
}

static void case_stream(void)
{
    FILE *f = fopen("two/b", "r+");
    fprintf(f, "before");
    IN_CHILD({ fprintf(f, "child"); fclose(fopen("made", "w")); });
    fprintf(f, "after");
    SAY(fclose(f));
    sums("two/b");
    char line[20] = "";
    f = popen("cat two/b", "r");
    SAY(fgets(line, 17, f) != NULL);
    puts(line);
    SAY(pclose(f));
}

/* The child writes, then waits for the end of the input; so does the parent. */
static void case_waits(void)
{
    SAY(pwrite(fd, "before", 6, 50));
    IN_CHILD({ pwrite(fd, "child", 5, 0); close(open("stands", O_CREAT, 0600)); read(0, room, 1); });
    SAY(pwrite(fd, "parent", 6, 100));
    SAY(close(open("stands", O_CREAT, 0600)));
    read(0, room, 1);
    sums("old");
}

CASES = {
    CASE(memory_is_shared), CASE(descriptors_are_not), CASE(names), CASE(signals_and_limits), CASE(programs_one_after_another),
    CASE(one_in_another), CASE(stream), CASE(waits),
};

MAIN
