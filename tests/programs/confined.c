/* Programs that confine themselves, and one whose files no path can name: natively and under Metamori the same.
 *   confined CASE     in a folder with the file old (6000 bytes) */
#include "say.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char room[6000];
static int old, new;

static const int sandbox[] = {
    SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_brk, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_fstat, SYS_newfstatat,
    SYS_lseek, SYS_close, SYS_openat, SYS_rt_sigreturn, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_futex, SYS_fcntl,
};
enum { ALLOWED = sizeof sandbox / sizeof *sandbox };

/* Lets the sandbox's calls pass, and says `otherwise` to all others. */
static int filter(unsigned otherwise, int by_seccomp)
{
    struct sock_filter code[ALLOWED + 3] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0) };
    for (unsigned char i = 0; i < ALLOWED; i++)
        code[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, sandbox[i], ALLOWED - i, 0);
    code[ALLOWED + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
    code[ALLOWED + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return by_seccomp ? (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                      : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void works(void)
{
    SAY(read(old, room, 10));
    SAY(write(old, "confined", 8));
    SAY(write(new, "confined", 8));
    int again = open("old", O_RDWR);
    SAY(write(again, "again", 5));
    SAY(lseek(again, 0, SEEK_SET));
    SAY(read(again, room, 30));
    say_bytes("old", room, 30);
    SAY(close(again));
    FILE *stream = fopen("new", "a");
    fputs("stream", stream);
    SAY(fclose(stream));
}

static void case_strict(void)
{
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    if (read(old, room, 10) == 10 && write(old, "strict", 6) == 6 && write(new, "strict", 6) == 6)
        syscall(SYS_exit, 7);
    syscall(SYS_exit, 8);
}

static void case_kills(void) { SAY(filter(SECCOMP_RET_KILL_PROCESS, 0)); works(); }
static void case_refuses(void) { SAY(filter(SECCOMP_RET_ERRNO | EPERM, 1)); works(); }
static void case_allows(void) { SAY(filter(SECCOMP_RET_ALLOW, 0)); works(); }
static void case_none(void)
{
    SAY(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL));
    SAY(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL));
    SAY(syscall(SYS_seccomp, 99, 0, NULL));
    struct sock_filter round[2] = { BPF_STMT(BPF_JMP | BPF_JA, (unsigned)-1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    SAY(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &(struct sock_fprog){ 2, round }));
    SAY(prctl(PR_GET_SECCOMP));
    works();
}

static void case_landlock(void)
{
    struct landlock_ruleset_attr rules = { .handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE };
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0);
    if (ruleset < 0)
        exit(77);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    SAY(syscall(SYS_landlock_restrict_self, ruleset, 0));
    SAY(mkdir("folder", 0700));
    SAY(unlink("new"));
    works();
}

/* What a confined process executes is confined too. */
static void case_executes(void)
{
    SAY(filter(SECCOMP_RET_ALLOW, 0));
    struct sock_filter code[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_statx, 0, 1),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog program = { sizeof code / sizeof *code, code };
    SAY(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    fflush(stdout);
    SAY(system("printf executed >> new; exit 3"));
}

static void case_deep_folders(void)
{
    char name[201] = "";
    for (int i = 0; i < 30; i++) {
        memset(name, 'a' + i % 26, 200);
        mkdir(name, 0700);
        chdir(name);
    }
    int deep = open("deepest", O_CREAT | O_RDWR, 0600);
    SAY(write(deep, "deep", 4));
    SAY(pwrite(deep, "D", 1, 0));
    SAY(rename("deepest", "deeper"));
    SAY(link("deeper", "again"));
    SAY(unlink("deeper"));
    SAY(truncate("again", 2));
    SAY(lseek(deep, 0, SEEK_END));
    SAY(metamori_checkpoint() < 0 && errno != ENOSYS);
    SAY(mkdir("folder", 0700));
    SAY(rmdir("folder"));
    SAY(pwrite(old, "meanwhile", 9, 100));
    SAY(unlink("again"));
    for (int i = 29; i >= 0; i--) {
        memset(name, 'a' + i % 26, 200);
        chdir("..");
        SAY(rmdir(name));
    }
}

#define CASE(name) {#name, case_##name}
static const struct { const char *name; void (*run)(void); } cases[] = {
    CASE(strict), CASE(kills), CASE(refuses), CASE(allows), CASE(none), CASE(landlock), CASE(executes), CASE(deep_folders),
};

/* In a child, so that the run has somebody left who is not confined. */
int main(int count_of, char **word)
{
    old = open("old", O_RDWR), new = open("new", O_CREAT | O_RDWR, 0600);
    SAY(write(old, "before", 6));
    metamori_checkpoint();
    fflush(stdout);
    pid_t child = fork();
    for (unsigned i = 0; !child && i < sizeof cases / sizeof *cases; i++)
        if (count_of == 2 && strcmp(word[1], cases[i].name) == 0)
            return cases[i].run(), fflush(stdout), 0;
    int status = 0;
    waitpid(child, &status, 0);
    printf("status %x\n", status);
    SAY(lseek(old, 0, SEEK_CUR));
    SAY(pwrite(old, "after", 5, 5000));
    return WIFEXITED(status) && WEXITSTATUS(status) == 77 ? 77 : 0;
}
