/* What signals and threads may meet inside the library: `signals WHAT`. A test holds a thread at a stop point and sends a signal,
 * or lets another thread go first. Prints what the program saw; every line must be as natively. */
#define _GNU_SOURCE
#include "metamori.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int file, count;
static volatile sig_atomic_t came;
static sigjmp_buf back;

static void install(int number, void (*handler)(int), int flags)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
    sigaction(number, &action, NULL);
}

static void say(const char *what, long r)
{
    printf("%s %ld%s%s\n", what, r, r < 0 ? " " : "", r < 0 ? strerror(errno) : "");
    fflush(stdout);
}

static void writes(int number)
{
    char text[16];
    int n = snprintf(text, sizeof text, "<%d %d>", number, ++count);
    came = pwrite(file, text, n, 100 * count) == n;
}

/* A handler writes to the file that its thread is just writing to; the signal was sent, whatever its number. */
static int sent(int number)
{
    install(number, writes, 0);
    say("written", pwrite(file, "between", 7, 0));
    say("came", came);
    return 0;
}

/* The program's own fault is its own: the handler runs at once, and may leave. */
static void leaves(int number) { siglongjmp(back, number); }
static int fault(void)
{
    install(SIGSEGV, leaves, SA_NODEFER);
    int number = sigsetjmp(back, 1);
    if (!number)
        *(volatile int *)8 = 1;
    say("fault", number);
    say("written", pwrite(file, "after", 5, 0));
    return 0;
}

static void calls(int number)
{
    (void)number;
    came = syscall(SYS_pwrite64, file, "handler", 7, 0L) == 7;
}

/* A handler that uses syscall() while its thread waits in syscall(). */
static int within(int leave)
{
    int ends[2];
    char one;
    if (pipe(ends) < 0)
        return 1;
    install(SIGUSR1, leave ? leaves : calls, 0);
    if (!leave || sigsetjmp(back, 1) == 0) {
        say("ready", 0);
        say("read", syscall(SYS_read, ends[0], &one, 1L));
    } else {
        calls(0);
    }
    say("came", came);
    return 0;
}

static void counts(int number) { (void)number, count++; }

/* A signal comes while a one-shot handler is put in the place of a lasting one. */
static int one_shot(void)
{
    install(SIGUSR1, counts, 0);
    say("ready", 0);
    getchar();
    install(SIGUSR1, counts, SA_RESETHAND);
    struct sigaction now;
    sigaction(SIGUSR1, NULL, &now);
    say("came", count);
    say("left", now.sa_handler == SIG_DFL);
    return 0;
}

/* O_TRUNC of a file that an index knows, while somebody else opens it. */
static int cut(void)
{
    int again = open("cut", O_RDWR | O_TRUNC);
    say("opened", again >= 0);
    say("written", write(again, "new", 3));
    return 0;
}

static void *write_low(void *name)
{
    int fd = open(name, O_RDWR);
    char block[8192] = "over";
    say(name, pwrite(fd, block, sizeof block, 0));
    return NULL;
}

static void *write_high(void *name)
{
    int fd = open(name, O_RDWR | O_CREAT, 0644);
    say(name, pwrite(fd, "beyond", 6, 1 << 20));
    return NULL;
}

/* A file size limit, and two threads of which each writes what goes into the buffer, or one beyond it. */
static int limited(int beyond)
{
    struct rlimit limit = { 8192, RLIM_INFINITY };
    pthread_t one, two;
    install(SIGXFSZ, counts, 0);
    setrlimit(RLIMIT_FSIZE, &limit);
    pthread_create(&one, NULL, write_low, "one");
    getchar();                           /* the first one stands where the limit is lifted */
    pthread_create(&two, NULL, beyond ? write_high : write_low, beyond ? "new" : "two");
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    getrlimit(RLIMIT_FSIZE, &limit);
    say("limit", limit.rlim_cur);
    say("came", count);
    return 0;
}

static void *checkpoints(void *unused)
{
    say("checkpoint", metamori_checkpoint());
    return unused;
}

/* A file size limit is set while another thread writes into the buffer, or takes a checkpoint. */
static int limited_later(int checkpoint)
{
    struct rlimit limit = { 10, RLIM_INFINITY };
    pthread_t one;
    install(SIGXFSZ, counts, 0);
    write(file, "over", 4);
    say("begun", 0);
    getchar();
    pthread_create(&one, NULL, checkpoint ? checkpoints : write_low, "one");
    getchar();                           /* it stands where it has asked for the limit */
    setrlimit(RLIMIT_FSIZE, &limit);
    getrlimit(RLIMIT_FSIZE, &limit);
    say("limit", limit.rlim_cur);
    pthread_join(one, NULL);
    say("came", count);
    return 0;
}

/* Whether a file can be opened by a program that has no number left; it is the library that needs one more. */
static void *cut_short(void *unused)
{
    say("cut", truncate("one", 100));
    return unused;
}

/* The program lowers its limit on descriptors while one thread is where the library has it lifted; another program is started. */
static int descriptors(void)
{
    struct rlimit limit, raised = { 60, 0 };
    getrlimit(RLIMIT_NOFILE, &limit);
    raised.rlim_max = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &raised);
    while (dup(0) >= 0)
        ;
    pthread_t one;
    pthread_create(&one, NULL, cut_short, NULL);
    getchar();                           /* it stands where the limit is lifted */
    if (!fork()) {
        getrlimit(RLIMIT_NOFILE, &limit);
        say("child", limit.rlim_cur);
        _exit(0);
    }
    wait(NULL);
    getrlimit(RLIMIT_NOFILE, &limit);
    say("limit", limit.rlim_cur);
    limit.rlim_cur = 50;
    setrlimit(RLIMIT_NOFILE, &limit);
    pthread_join(one, NULL);
    getrlimit(RLIMIT_NOFILE, &limit);
    say("limit", limit.rlim_cur);
    return 0;
}

/* The program forbids itself a call that following takes, while a thread has begun to write. */
static void *writes_once(void *unused)
{
    say("written", pwrite(file, "between", 7, 0));
    say("written", pwrite(file, "after", 5, 7));
    return unused;
}
static int confined(void)
{
    struct sock_filter refuses_kcmp[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kcmp, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { 4, refuses_kcmp };
    pthread_t one;
    say("redirected", pwrite(file, "redirected", 10, 5000));
    getchar();
    pthread_create(&one, NULL, writes_once, NULL);
    getchar();                           /* it has looked at the descriptor, and not yet begun */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    say("confined", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    pthread_join(one, NULL);
    return 0;
}

static void opens(int number)
{
    (void)number;
    FILE *f = fopen("came", "w");
    came = f && fwrite("handler", 1, 7, f) == 7 && fclose(f) == 0;
}

/* A handler opens a stream while its thread does. */
static int stream(void)
{
    install(SIGUSR1, opens, SA_NODEFER);
    FILE *f = fopen("two", "r+");
    say("opened", f != NULL);
    say("came", came);
    return 0;
}

static void locks(int number)
{
    (void)number;
    struct flock lock = { .l_type = F_WRLCK };
    came = fcntl(open("came", O_RDWR | O_CREAT, 0644), F_SETLK, &lock) == 0;
}

/* A handler locks a file while its thread does. */
static int locked(void)
{
    struct flock lock = { .l_type = F_WRLCK };
    install(SIGUSR1, locks, SA_NODEFER);
    say("locked", fcntl(open("two", O_RDWR), F_SETLK, &lock));
    say("came", came);
    return 0;
}

static void asks(int number)
{
    opens(number);
    came = came && metamori_checkpoint() > 0;
}

/* A handler takes a checkpoint while its thread does. */
static int asked(void)
{
    install(SIGUSR1, asks, SA_NODEFER);
    say("ready", 0);
    getchar();
    say("checkpoint", metamori_checkpoint());
    say("came", came);
    return 0;
}

/* A handler opens a file in a child that is not yet on its feet. */
static int child(void)
{
    install(SIGUSR1, opens, SA_NODEFER);
    if (!fork()) {
        say("came", came);
        _exit(0);
    }
    wait(NULL);
    say("checkpoint", metamori_checkpoint());
    return 0;
}

/* A signal comes in metamori_restore. */
static int restored(void)
{
    install(SIGUSR1, counts, 0);
    say("ready", 0);
    getchar();
    long r = metamori_restore(1), times = count;
    say("restored", r);
    say("came", times);
    return 0;
}

/* A signal comes in the first call that would be tracked, if the store could be used. */
static int late(void)
{
    install(SIGUSR1, counts, 0);
    int one = open("one", O_RDWR), times = count;
    say("opened", one >= 0);
    say("came", times);
    return 0;
}

/* main returns while threads write: of what they were told that it is written, nothing may be missing. */
static void *writes_on(void *unused)
{
    int one = open("one", O_RDWR);
    for (long i = 1;; i++)
        if (pwrite(file, &i, sizeof i, i % 800 * sizeof i) != sizeof i || write(one, &i, sizeof i) != sizeof i
            || write(1, &i, sizeof i) != sizeof i)
            return unused;
}
static void *names_on(void *unused)
{
    for (;;) {
        close(open("name", O_RDWR | O_CREAT, 0644));
        rename("name", "other name");
        unlink("other name");
    }
    return unused;
}
static int returns(void)
{
    pthread_t one, two;
    pthread_create(&one, NULL, writes_on, NULL);
    pthread_create(&two, NULL, names_on, NULL);
    usleep(100000);
    return 0;
}

int main(int argc, char **word)
{
    (void)argc;
    const char *what = word[1];
    if (!strcmp(what, "late"))
        return late();
    file = open("file", O_RDWR);
    metamori_checkpoint();
    if (!strncmp(what, "sent ", 5))
        return sent(atoi(what + 5));
    return !strcmp(what, "fault") ? fault() : !strcmp(what, "within") ? within(0) : !strcmp(what, "within and leave") ? within(1)
         : !strcmp(what, "one-shot") ? one_shot() : !strcmp(what, "cut") ? cut() : !strcmp(what, "limit") ? limited(0)
         : !strcmp(what, "limit later") ? limited_later(0) : !strcmp(what, "limit checkpoint") ? limited_later(1)
         : !strcmp(what, "limit beyond") ? limited(1) : !strcmp(what, "descriptors") ? descriptors()
         : !strcmp(what, "confined") ? confined() : !strcmp(what, "returns") ? returns()
         : !strcmp(what, "stream") ? stream() : !strcmp(what, "locked") ? locked() : !strcmp(what, "child") ? child()
         : !strcmp(what, "asked") ? asked() : !strcmp(what, "restored") ? restored() : 2;
}
