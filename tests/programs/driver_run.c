/* The driver's operations on the run: checkpoints, restores, other processes, its own end. */
#include "driver.h"
#include <metamori.h>
#include <signal.h>
#include <sys/wait.h>

#define OP(name) static void op_##name(int count, char **word)
#define UNUSED (void)count, (void)word

static int taken[65536];
static int taken_count;

OP(checkpoint) { UNUSED; reply_number(taken[taken_count++] = metamori_checkpoint()); }
OP(cut) { UNUSED; reply_number(metamori_checkpoint()); } /* by one of several threads at once: @n does not count it */
OP(restore) /* an index, or @n: the n-th checkpoint (from 0) that this process took */
{
    UNUSED;
    int index = word[1][0] == '@' ? taken[number(word[1] + 1)] : (int)number(word[1]);
    reply_number(metamori_restore(index));
}
OP(active) { UNUSED; reply("%d", metamori_active()); }
OP(pid) { UNUSED; reply("%d", (int)getpid()); }
OP(echo) { UNUSED; reply("%s", word[1]); }
OP(sleep) { UNUSED; usleep(number(word[1]) * 1000); reply("0"); }
OP(exit) { UNUSED; exit((int)number(word[1])); }
OP(underscore_exit) { UNUSED; _exit((int)number(word[1])); }
OP(raise) { UNUSED; reply_number(raise((int)number(word[1]))); }

OP(sh) /* the rest of the line, by the shell; answers with its exit status */
{
    char line[4096] = "";
    for (int i = 1; i < count; i++) {
        strncat(line, word[i], sizeof line - strlen(line) - 2);
        strcat(line, " ");
    }
    int status = system(line);
    reply("%d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

static pid_t child;
OP(child) /* a child that does nothing but live */
{
    UNUSED;
    child = fork();
    if (!child)
        for (;;)
            pause();
    reply("%d", child > 0 ? 0 : -1);
}
OP(endchild)
{
    UNUSED;
    kill(child, SIGKILL);
    reply("%d", waitpid(child, NULL, 0) == child ? 0 : -1);
}
OP(forkwrite) /* descriptor, length, seed: a child writes at the shared position and leaves; answers its status */
{
    UNUSED;
    pid_t pid = fork();
    if (!pid) {
        make_bytes(number(word[3]), size_of(word[2]), data);
        _exit(write((int)number(word[1]), data, size_of(word[2])) == (ssize_t)size_of(word[2]) ? 0 : 1);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    reply("%d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

const struct entry run_operations[] = {
    {"checkpoint", 0, op_checkpoint}, {"cut", 0, op_cut}, {"restore", 1, op_restore}, {"active", 0, op_active}, {"pid", 0, op_pid},
    {"echo", 1, op_echo}, {"sleep", 1, op_sleep}, {"exit", 1, op_exit}, {"_exit", 1, op_underscore_exit},
    {"raise", 1, op_raise}, {"sh", 1, op_sh}, {"child", 0, op_child}, {"endchild", 0, op_endchild},
    {"forkwrite", 3, op_forkwrite}, {0, 0, 0}};
