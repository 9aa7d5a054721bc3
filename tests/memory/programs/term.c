/* Sends itself a SIGTERM: as its first deed, or as its last; `ignores`: after one that it ignored.  Counts into a file for about 0.3 s;
 * with `first` it ends no sooner than there is a file `go`. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void term(void) { kill(getpid(), SIGTERM); }

static void wait_for(const char *name)
{
    while (access(name, F_OK) < 0)
        usleep(1000);
}

int main(int count, char **word)
{
    const char *when = count > 1 ? word[1] : "";
    if (!strcmp(when, "first"))
        term();
    FILE *f = fopen("lines", "w");
    if (!strcmp(when, "last"))
        atexit(term);
    for (int i = 0; i < 100; i++) {
        if (i == 50 && !strcmp(when, "ignores"))
            signal(SIGTERM, SIG_IGN);
        fprintf(f, "line %d\n", i);
        fflush(f);
        usleep(3000);
        if (i == 50 && !strcmp(when, "ignores")) {
            wait_for("sent");
            signal(SIGTERM, SIG_DFL);
            term();
            wait_for("go");
        }
    }
    fclose(f);
    if (!strcmp(when, "first"))
        wait_for("go");
    puts("end");
    return 7;
}
