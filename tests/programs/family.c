/* Who is alive when a program goes back: threads that write, a process that writes, one that is stopped, one in vfork.
 *
 * While any of the processes lives the restore is refused and nothing has changed; one that has ended and was not waited
 * for is no obstacle.  Each line says who lives, the answer, and whether the shared file is as it was before the question.
 */
#include "say.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { OLD = 5000, NEW = 5100, THREADS = 2 };
static int shared, own[THREADS], ready[2], end[2], stop, index_then;
static pid_t in_vfork;

static void *writing(void *which)
{
    char line[24];
    for (long count = 1; !__atomic_load_n(&stop, __ATOMIC_RELAXED); count++) {
        snprintf(line, sizeof line, "%07ld\n", count);
        write(own[(long)which], line, 8);
        usleep(300);
    }
    return NULL;
}

static void *waits_in_vfork(void *nothing)
{
    pid_t pid = vfork();
    if (!pid) {
        char byte = 'v';
        write(ready[1], &byte, 1);
        read(end[0], &byte, 1);
        _exit(0);
    }
    in_vfork = pid;
    return nothing;
}

static void go_back(const char *who)
{
    char before[NEW], after[NEW];
    long size = pread(shared, before, NEW, 0), place = lseek(shared, 0, SEEK_CUR);
    int r = metamori_restore(index_then), error = errno;
    long now = pread(shared, after, NEW, 0);
    int same = now == size && !memcmp(before, after, size) && lseek(shared, 0, SEEK_CUR) == place;
    printf("%s: %d %s, %s\n", who, r, r ? strerrorname_np(error) : "", same ? "as before" : "changed");
}

int main(void)
{
    char bytes[OLD], byte;
    pthread_t thread[THREADS + 1];
    memset(bytes, 'a', OLD);
    shared = open("shared", O_RDWR | O_CREAT, 0644);
    write(shared, bytes, OLD);
    for (int i = 0; i < THREADS; i++)
        own[i] = open(i ? "own1" : "own0", O_RDWR | O_CREAT | O_APPEND, 0644);
    pipe(ready), pipe(end);
    index_then = metamori_checkpoint();
    pwrite(shared, "bbbb", 4, 1000);
    write(shared, bytes, NEW - OLD);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, writing, (void *)i);
    pid_t busy = fork();
    if (!busy)
        for (write(ready[1], "b", 1);; usleep(100))
            pwrite(own[0], "", 0, 0), lseek(own[1], 0, SEEK_CUR);
    pid_t stopped = fork();
    if (!stopped)
        _exit(raise(SIGSTOP));
    waitpid(stopped, NULL, WUNTRACED);
    pthread_create(&thread[THREADS], NULL, waits_in_vfork, NULL);
    for (int i = 0; i < 2; i++)
        read(ready[0], &byte, 1);
    go_back("busy, stopped, in vfork");
    kill(busy, SIGKILL), waitpid(busy, NULL, 0);
    go_back("stopped, in vfork");
    kill(stopped, SIGCONT), waitpid(stopped, NULL, 0);
    go_back("in vfork");
    write(end[1], "v", 1);
    pthread_join(thread[THREADS], NULL);
    siginfo_t info;
    waitid(P_PID, in_vfork, &info, WEXITED | WNOWAIT);
    go_back("nobody");
    printf("%lld, %ld bytes\n", (long long)lseek(shared, 0, SEEK_CUR), (long)pread(shared, bytes, OLD, 0));
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    waitpid(in_vfork, NULL, 0);
    return 0;
}
