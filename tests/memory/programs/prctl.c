/* What prctl has set for a process: who hears of its parent's end, who takes orphans, and what it may. */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void told(int number) { _exit(number == SIGTERM ? 7 : 1); }

static void child(void)
{
    signal(SIGTERM, told);
    signal(SIGALRM, told);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    alarm(60);
    for (;;)
        pause();
}

static void between(void)
{
    if (fork() == 0)
        child();
    for (int i = 0; i < 40; i++)
        usleep(40000);
    _exit(3);
}

int main(void)
{
    int status, reaper = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (fork() == 0)
        between();
    while (wait(&status) > 0)
        printf("status %d\n", WEXITSTATUS(status));
    prctl(PR_GET_CHILD_SUBREAPER, &reaper, 0, 0, 0);
    printf("%d %d %d\n", reaper, prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    return 0;
}
