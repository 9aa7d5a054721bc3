/* Threads that are cancelled wherever they are, then checkpoints: `cancelled WHAT ROUNDS`.
 *
 * asynchronous, of one file or of names: at any instruction, in calls that glibc makes without a lock.  All others: in calls that are
 * cancellation points.  What a cancelled thread leaves open natively it leaves open here: only the calls of whoever comes next are told.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <metamori.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

extern char **environ;
static int begun;                                  /* times round, of all threads */
static int asynchronous;

static void bytes(void)
{
    char block[4096] = "bytes";
    static int fd = -1;
    if (fd < 0)
        fd = open("file", O_RDWR);
    pwrite(fd, block, sizeof block, 4096 * (begun % 16));
    pread(fd, block, sizeof block, 0);
    lseek(fd, 0, SEEK_SET);
    write(fd, "at once", 7);
    read(fd, block, 5);
}

static void names(void)
{
    struct stat st;
    int fd = open("one", O_RDWR | O_CREAT, 0644);
    write(fd, "new", 3);
    close(fd);
    rename("one", "two");
    stat("two", &st);
    mkdir("folder", 0755);
    rmdir("folder");
    truncate("two", 5);
    unlink("two");
}

static void closes(void *file) { fclose(file); }
static void streams(void)
{
    char line[100];
    FILE *f = fopen("stream", "w+");
    if (!f)
        return;
    pthread_cleanup_push(closes, f);
    for (int i = 0; i < 20; i++) {
        fputs("a line of text\n", f);
        fflush(f);
    }
    rewind(f);
    fgets(line, sizeof line, f);
    fsync(fileno(f));
    pthread_cleanup_pop(1);
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    int fd = open(path, O_RDONLY);
    pthread_testcancel();
    close(fd);
    return 0;
}
static void walks(void)
{
    DIR *d = opendir(".");
    if (d) {
        while (readdir(d))
            ;
        closedir(d);
    }
    nftw(".", visit, 3, FTW_PHYS);
}

static void children(void)
{
    char *words[] = { "true", NULL };
    pid_t child;
    int status;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, words, environ) == 0)
        waitpid(child, &status, 0);
    system("echo child > child");
    FILE *p = popen("echo child", "r");
    if (p)
        pclose(p);
}

static void others(void)
{
    int from = open("file", O_RDONLY), to = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0644);
    off_t at = 0;
    copy_file_range(from, &at, to, NULL, 4096, 0);
    fsync(to);
    fdatasync(to);
    sync_file_range(to, 0, 4096, SYNC_FILE_RANGE_WRITE);
    fallocate(to, 0, 0, 8192);
    posix_fallocate(to, 0, 10000);
    lockf(to, F_LOCK, 0);
    fcntl(to, F_SETLKW, &(struct flock){ .l_type = F_UNLCK });
    tcdrain(to);
    creat("copy", 0644);
    close(to);
    close(from);
    char name[] = "XXXXXX";
    close(mkstemp(name));
    unlink(name);
}

/* On a filesystem that cannot, the C library writes to each block. */
static void fills(void)
{
    static int fd = -1;
    if (fd < 0)
        fd = open("file", O_RDWR);
    posix_fallocate(fd, 0, 1 << 20);
}

static const struct { const char *name; void (*once)(void); int asynchronous; } kinds[] = {
    { "bytes", bytes, 1 }, { "names", names, 1 }, { "deferred-bytes", bytes, 0 }, { "deferred-names", names, 0 },
    { "streams", streams, 0 }, { "walks", walks, 0 }, { "children", children, 0 }, { "others", others, 0 }, { "fills", fills, 0 },
};

static void *works(void *once)
{
    int before;
    if (asynchronous)
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    for (;;) {
        __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
        ((void (*)(void))once)();
        if (!asynchronous)
            pthread_testcancel();
    }
    return NULL;
}

int main(int count, char **words)
{
    int which = 0, rounds = count > 2 ? atoi(words[2]) : 0, cancelled = 0, bad = 0;
    while (strcmp(kinds[which].name, words[1]))
        which++;
    asynchronous = kinds[which].asynchronous;
    for (int i = 0; i < rounds; i++) {
        pthread_t thread;
        void *result;
        int before = __atomic_load_n(&begun, __ATOMIC_SEQ_CST);
        if (pthread_create(&thread, NULL, works, (void *)kinds[which].once))
            return 2;
        while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) == before)
            usleep(10);
        for (volatile int wait = random() % 30000; wait > 0; wait--)
            ;
        pthread_cancel(thread);
        pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED;
        for (int fd = 40; fd < 60; fd++)
            close(fd);
        if (i % 50 == 49 && metamori_checkpoint() < 0 && errno != ENOSYS)
            bad++;
    }
    names();                               /* none of them is held */
    int fd = open("file", O_RDWR | O_TRUNC);
    struct sigaction action;
    sigaction(SIGINT, NULL, &action);
    printf("%d cancelled, written %zd, SIGINT %d, %d checkpoints failed\n", cancelled, write(fd, "the end", 7),
           action.sa_handler == SIG_IGN, bad);
    return 0;
}
