/* Times at an address that cannot be read: what each call answers, or that it faults, and that a write to the file, which takes
 * the file's lock, still ends.  A handler of the program goes on elsewhere.  Needs a file `old` of 10000 bytes. */
#include "say.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <utime.h>

static sigjmp_buf elsewhere;
static void handler(int number) { siglongjmp(elsewhere, number); }

static int fd;
#define TRY(call)                                                                         \
    do {                                                                                  \
        if (sigsetjmp(elsewhere, 1) == 0)                                                 \
            SAY(call);                                                                    \
        else                                                                              \
            printf("%d:%d " #call " faults\n", say_round, __LINE__);                      \
        alarm(60);                                                                        \
        SAY(pwrite(fd, "x", 1, 100));                                                     \
        SAY(rename("old", "new"));                                                        \
        SAY(rename("new", "old"));                                                        \
        alarm(0);                                                                         \
        fflush(stdout);                                                                   \
    } while (0)

int main(void)
{
    struct sigaction how = {.sa_handler = handler};
    sigaction(SIGSEGV, &how, NULL);
    fd = open("old", O_RDWR);
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    void *bad[] = {(void *)8, pages + 4096, pages + 4096 - 8, pages + 4096 - sizeof(struct timeval)};
    for (say_round = 0; say_round < 4; say_round++) {
        void *times = bad[say_round];
        SAY(pwrite(fd, "y", 1, 200));
        TRY(utime("old", times));
        TRY(utimes("old", times));
        TRY(lutimes("old", times));
        TRY(futimes(fd, times));
        TRY(futimesat(AT_FDCWD, "old", times));
        TRY(utimensat(AT_FDCWD, "old", times, 0));
        TRY(futimens(fd, times));
        TRY(syscall(SYS_utimensat, AT_FDCWD, "old", times, 0));
#ifdef SYS_utimes
        TRY(syscall(SYS_utime, "old", times));
        TRY(syscall(SYS_utimes, "old", times));
        TRY(syscall(SYS_futimesat, AT_FDCWD, "old", times));
        TRY(syscall(SYS_utimes, "none", times));
#endif
        TRY(utimes("none", times));
    }
    return 0;
}
