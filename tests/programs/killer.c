/* killer - runs a command and counts the system calls of all its processes, from the first that opens a file below a folder; kills
 * at the Nth of them, before it happens.
 *
 *     killer NTH k|p FOLDER COUNTED COMMAND [ARG...]
 *
 * k: all processes; p: the one that calls.  NTH 0: none.  COUNTED: the file that the count of calls goes to.  x86-64. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *folder;
static long nth, count;
static int counts, all_die;

static void die(const char *what)
{
    perror(what);
    exit(125);
}

static int opens_below(pid_t pid, const struct __ptrace_syscall_info *info)
{
    char path[4096] = "";
    if (info->entry.nr != SYS_openat)
        return 0;
    size_t piece = 4096 - info->entry.args[1] % 4096, room = strlen(folder) + 1;
    struct iovec here = { path, piece < room ? piece : room }, there = { (void *)info->entry.args[1], here.iov_len };
    return process_vm_readv(pid, &here, 1, &there, 1, 0) > 0 && !strncmp(path, folder, strlen(folder));
}

static void called(pid_t pid, int one)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) <= 0 || info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return;
    counts = counts || opens_below(pid, &info);
    if (!counts || ++count != nth)
        return;
    fprintf(stderr, "killed at call %ld: number %llu of process %d\n", count, (unsigned long long)info.entry.nr, pid);
    all_die = !one;
    kill(pid, SIGKILL);
}

static int watch(pid_t first, int one)
{
    int result = 0;
    for (int status;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid < 0)
            return result;                 /* nobody is left */
        if (!WIFSTOPPED(status)) {
            result = pid == first ? status : result;
            continue;
        }
        int event = status >> 16, signal = WSTOPSIG(status), of_call = signal == (SIGTRAP | 0x80);
        if (of_call && !all_die)
            called(pid, one);
        if (all_die)
            return 0;                      /* with this process all that it traces are killed */
        int stays = event == PTRACE_EVENT_STOP && signal != SIGTRAP;
        ptrace(stays ? PTRACE_LISTEN : PTRACE_SYSCALL, pid, 0, event || of_call ? 0 : signal);
    }
}

int main(int words, char **word)
{
    int gate[2];
    if (words < 6 || pipe(gate) < 0)
        return 125;
    nth = atol(word[1]), folder = word[3];
    pid_t child = fork();
    if (child == 0) {
        char go;
        close(gate[1]);
        if (read(gate[0], &go, 1) != 1)
            _exit(125);
        close(gate[0]);
        execvp(word[5], word + 5);
        die(word[5]);
    }
    close(gate[0]);
    long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL
                 | PTRACE_O_TRACESYSGOOD;
    if (ptrace(PTRACE_SEIZE, child, 0, options) < 0 || ptrace(PTRACE_INTERRUPT, child, 0, 0) < 0)
        die("ptrace");
    if (write(gate[1], "g", 1) != 1)
        return 125;
    close(gate[1]);
    int status = watch(child, word[2][0] == 'p');
    FILE *out = fopen(word[4], "w");
    if (!out || fprintf(out, "%ld\n", count) < 0 || fclose(out) != 0)
        die(word[4]);
    return all_die ? 137 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
