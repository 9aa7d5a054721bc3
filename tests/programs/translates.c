/* translates.c - [plain] COMMAND: a tracer to which "guest" means "hosts", in what the command opens; as proot does it.
 *
 * Where it may have a filter (SECCOMP_RET_TRACE) that hands it these calls, it stops at no others; else at each.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#define PATH(r) (r).rsi
#define STACK(r) (r).rsp
#else
#define PATH(r) (r).regs[1]
#define STACK(r) (r).sp
#endif

static int has_filter(void)
{
    struct sock_filter step[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { sizeof step / sizeof *step, step };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0)
        return 1;
    return errno != EINVAL || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;    /* it would not do this again */
}

static void translate(pid_t child)
{
    struct __ptrace_syscall_info call;
    struct user_regs_struct registers;
    struct iovec all = { &registers, sizeof registers };
    ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof call, &call);
    if ((call.op != PTRACE_SYSCALL_INFO_ENTRY && call.op != PTRACE_SYSCALL_INFO_SECCOMP) || call.entry.nr != SYS_openat)
        return;
    ptrace(PTRACE_GETREGSET, child, NT_PRSTATUS, &all);
    long text = ptrace(PTRACE_PEEKDATA, child, PATH(registers), 0);
    if (memcmp(&text, "guest", 6) != 0)
        return;
    memcpy(&text, "hosts", 5);
    PATH(registers) = STACK(registers) - 1024;
    ptrace(PTRACE_POKEDATA, child, PATH(registers), text);
    ptrace(PTRACE_SETREGSET, child, NT_PRSTATUS, &all);
}

int main(int count, char **word)
{
    int plain = count > 1 && strcmp(word[1], "plain") == 0, status, how = PTRACE_SYSCALL;
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        if (!plain && has_filter())
            raise(SIGUSR1);
        execvp(word[1 + plain], word + 1 + plain);
        _exit(127);
    }
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
    for (;;) {
        ptrace(how, child, 0, 0);
        if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
            return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
        if (WSTOPSIG(status) == SIGUSR1)
            how = PTRACE_CONT;
        else
            translate(child);
    }
}
