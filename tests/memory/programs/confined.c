/* What a container's default filter refuses: personality with a new value, and userfaultfd.
 * confined PROGRAM [WORD...]; CONFINED=places refuses what says where heap and stack lie, too, CONFINED=moves moving mappings to a
 * chosen address. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define IF(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)

int main(int count, char **word)
{
    struct sock_filter rules[] = {
        LOAD(offsetof(struct seccomp_data, nr)), IF(SYS_personality, 0, 8), LOAD(offsetof(struct seccomp_data, args[0])),
        IF(0, 5, 0), IF(8, 4, 0), IF(0x20000, 3, 0), IF(0x20008, 2, 0), IF(0xffffffff, 1, 0),
        RETURN(SECCOMP_RET_ERRNO | EPERM), RETURN(SECCOMP_RET_ALLOW), IF(SYS_userfaultfd, 0, 1),
        RETURN(SECCOMP_RET_ERRNO | EPERM), RETURN(SECCOMP_RET_ALLOW),
    };
    const char *more = getenv("CONFINED");
    struct sock_filter of_places[] = {
        LOAD(offsetof(struct seccomp_data, nr)), IF(SYS_prctl, 0, 3), LOAD(offsetof(struct seccomp_data, args[0])),
        IF(PR_SET_MM, 0, 1), RETURN(SECCOMP_RET_ERRNO | EPERM), RETURN(SECCOMP_RET_ALLOW),
    }, of_moves[] = {
        LOAD(offsetof(struct seccomp_data, nr)), IF(SYS_mremap, 0, 3), LOAD(offsetof(struct seccomp_data, args[3])),
        IF(3, 0, 1), RETURN(SECCOMP_RET_ERRNO | EPERM), RETURN(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog second = { sizeof of_moves / sizeof *of_moves, more && !strcmp(more, "places") ? of_places : of_moves };
    struct sock_fprog filter = { sizeof rules / sizeof *rules, rules };
    if (count < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)
        || (more && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &second))) {
        perror("confined");
        return 125;
    }
    execvp(word[1], word + 1);
    perror(word[1]);
    return 127;
}
