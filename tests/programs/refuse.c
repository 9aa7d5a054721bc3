/* refuse CALL ERRNO ARGUMENT MASK VALUE COMMAND [ARG...]: a command whose system calls of this number fail where the bits of
 * the mask have this value in the argument (0 to 5; its lower 32 bits). */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 7)
        return 125;
    unsigned call = (unsigned)strtoul(argv[1], 0, 0), error = (unsigned)strtoul(argv[2], 0, 0);
    unsigned argument = (unsigned)strtoul(argv[3], 0, 0), mask = (unsigned)strtoul(argv[4], 0, 0);
    unsigned value = (unsigned)strtoul(argv[5], 0, 0);
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, args) + 8 * argument),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { sizeof program / sizeof program[0], program };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("refuse");
        return 125;
    }
    execvp(argv[6], argv + 6);
    perror(argv[6]);
    return 127;
}
