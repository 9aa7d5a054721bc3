/* sets.c - epoll sets that know descriptors by numbers which are closed, another's by now, or of a child, and one that is
 * on its way: what is printed STEPS steps later depends on nothing but the program, also after it was brought back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS 40
#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

static uint32_t work(uint32_t state)
{
    for (int i = 0; i < 3000000; i++)
        state = state * 1664525u + 1013904223u;
    return state;
}

static void add(int set, int fd, uint64_t data)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = data };
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

/* Of one descriptor, over a socket: sent, or received. */
static int passed(int way, int fd)
{
    char c = 'd', control[CMSG_SPACE(sizeof fd)] = { 0 };
    struct iovec v = { &c, 1 };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (fd < 0) {
        MUST(recvmsg(way, &m, 0) == 1);
        memcpy(&fd, CMSG_DATA(h), sizeof fd);
        return fd;
    }
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(h), &fd, sizeof fd);
    MUST(sendmsg(way, &m, 0) == 1 && close(fd) == 0);
    return -1;
}

static void say(const char *when, int set)
{
    struct epoll_event events[16];
    int n = epoll_wait(set, events, 16, 0), seen = 0;
    for (int i = 0; i < n; i++)
        seen |= 1 << events[i].data.u64;
    printf("%s: %d of %x\n", when, n, seen);
}

int main(void)
{
    uint32_t state = 1;
    int set = epoll_create1(0), other = epoll_create1(0), pair[2], go[2], way[2], number, kept[4], status;
    MUST(set >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, go) == 0);
    /* one number, three descriptions after each other, all of which live on; then a fourth has it that nobody watches */
    MUST((number = eventfd(0, EFD_NONBLOCK)) >= 0);
    for (int i = 0; i < 4; i++) {
        if (i < 3)
            add(set, number, (uint64_t)i + 1);
        MUST((kept[i] = dup(number)) >= 0);
        int next = eventfd(0, EFD_NONBLOCK);
        MUST(next >= 0 && dup2(next, number) == number && close(next) == 0);
    }
    /* closed, and nobody has the number; the other end is kept */
    int closed = dup(pair[0]);
    add(set, closed, 5), close(closed);
    add(set, go[0], 6);
    int lone = eventfd(0, EFD_NONBLOCK);
    MUST(lone >= 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, way) == 0);
    add(set, lone, 9), passed(way[0], lone);
    /* a set that is watched by another under the number of a third */
    int third = dup(set);
    add(other, third, 7);
    MUST(dup2(pair[1], third) == third);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {                      /* what it adds the parent has not */
        int own = eventfd(0, EFD_NONBLOCK), byte;
        add(set, own, 8);
        MUST(write(go[1], "x", 1) == 1 && read(go[1], &byte, 1) == 1);
        MUST(eventfd_write(own, 1) == 0 && write(go[1], "y", 1) == 1 && read(go[1], &byte, 1) == 1);
        _exit(7);
    }
    char byte;
    MUST(read(go[0], &byte, 1) == 1);
    for (int i = 0; i < STEPS; i++) {
        state = work(state);
        printf("%d %u\n", i, state), fflush(stdout);
    }
    say("nothing", set), say("nothing", other);
    MUST(write(go[0], "x", 1) == 1 && read(go[0], &byte, 1) == 1);
    say("the child's", set), say("the set", other);
    for (int i = 0; i < 4; i++) {
        MUST(eventfd_write(kept[i], 1) == 0);
        say("one more", set);
    }
    MUST(write(pair[1], "z", 1) == 1);
    say("the closed one", set);
    MUST(eventfd_write(number, 1) == 0);
    say("its number", set);
    MUST(eventfd_write(passed(way[1], -1), 1) == 0);
    say("what was on its way", set);
    MUST(write(go[0], "x", 1) == 1 && waitpid(child, &status, 0) == child);
    printf("child %d\n", WEXITSTATUS(status));
    return 0;
}
