/* The driver's twins: processes of its own that share its descriptors and do what they are told, one line at a time. */
#include "driver.h"
#include <signal.h>
#include <sys/wait.h>

#define OP(name) static void op_##name(int count, char **word)

enum { FAR = 900 };                    /* the pipes leave the low numbers alone */
int this_process = FIRST_PROCESS;
static struct { pid_t pid; int to, from; } twins[TWINS];

static int far(int fd)
{
    int up = fcntl(fd, F_DUPFD_CLOEXEC, FAR);
    close(fd);
    return up;
}

OP(twin)
{
    (void)count;
    int n = (int)number(word[1]) % TWINS, in[2], out[2];
    if (twins[n].pid || pipe(in) < 0 || pipe(out) < 0) {
        reply("-1 EBUSY");
        return;
    }
    for (int i = 0; i < 2; i++)
        in[i] = far(in[i]), out[i] = far(out[i]);
    share_board(-1);
    pid_t pid = fork();
    if (!pid) {
        this_process = n;
        forget_threads();
        dup2(in[0], 0);
        dup2(out[1], 1);
        for (int i = 0; i < TWINS; i++)
            if (twins[i].pid)
                close(twins[i].to), close(twins[i].from), twins[i].pid = 0;
        for (int i = 0; i < 2; i++)
            close(in[i]), close(out[i]);
        _exit(serve());
    }
    close(in[0]), close(out[1]);
    twins[n].pid = pid, twins[n].to = in[1], twins[n].from = out[0];
    is_in_family(n, pid);
    reply("%d", pid > 0 ? 0 : -1);
}

int ask_twin(int n, const char *line)
{
    ssize_t length = (ssize_t)strlen(line);
    return twins[n].pid && write(twins[n].to, line, length) == length;
}

int hear_twin(int n, char *answer, size_t room)
{
    size_t length = 0;
    for (; length < room - 1; length++)
        if (read(twins[n].from, answer + length, 1) != 1 || answer[length] == '\n')
            break;
    answer[length] = 0;
    return length > 0;
}

int bury_twin(int n)
{
    int status = -1;
    close(twins[n].to);
    waitpid(twins[n].pid, &status, 0);
    close(twins[n].from);
    twins[n].pid = 0;
    is_in_family(n, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

OP(in) /* twin, then a line for it; answers as it does */
{
    int n = (int)number(word[1]) % TWINS;
    char line[8192], answer[65536];
    joined(word + 2, count - 2, line, sizeof line - 1);
    strcat(line, "\n");
    fflush(NULL);                      /* as in `together` */
    if (!ask_twin(n, line)) {
        reply("-1 ESRCH");
        return;
    }
    hear_twin(n, answer, sizeof answer);
    reply("%s", answer);
}

OP(endtwin)
{
    (void)count;
    reply("%d", bury_twin((int)number(word[1]) % TWINS));
}

OP(killtwin)
{
    (void)count;
    kill(twins[number(word[1]) % TWINS].pid, SIGKILL);
    reply("%d", bury_twin((int)number(word[1]) % TWINS));
}

const struct entry twin_operations[] = {
    {"twin", 1, op_twin}, {"in", 2, op_in}, {"endtwin", 1, op_endtwin}, {"killtwin", 1, op_killtwin}, {0, 0, 0}};
