/* A thread that gives rights up for itself alone, while a checkpoint is asked for: apart groups | capabilities | filter | network */
#define _GNU_SOURCE
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <metamori.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_barrier_t barrier;
static const char *what;

static int give_up(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };
    struct sock_filter all[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog filter = { 1, all };
    gid_t groups[] = { 1, 2 };
    return !strcmp(what, "groups") ? (int)syscall(SYS_setgroups, 2, groups)
         : !strcmp(what, "capabilities") ? (int)syscall(SYS_capset, &header, none)
         : !strcmp(what, "network") ? unshare(CLONE_NEWNET) : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static void *thread(void *result)
{
    *(int *)result = give_up();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(int count, char **words)
{
    pthread_t other;
    int result;
    what = words[count - 1];
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&other, NULL, thread, &result);
    pthread_barrier_wait(&barrier);
    metamori_checkpoint();
    pthread_barrier_wait(&barrier);
    pthread_join(other, NULL);
    return result ? 77 : 0;
}
