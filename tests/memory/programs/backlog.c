/* backlog.c - connections that are accepted STEPS steps after they were made: what is printed depends on nothing but the
 * program, also after it was brought back.  A child asks, too, and is answered.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS 40
#define KINDS 4
#define EACH 4
#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

union name { struct sockaddr any; struct sockaddr_un unix_; struct sockaddr_in in; struct sockaddr_in6 in6; };
static struct { int family, type, listens, client[EACH]; union name name; socklen_t size; } kind[KINDS] = {
    { .family = AF_UNIX, .type = SOCK_STREAM }, { .family = AF_UNIX, .type = SOCK_SEQPACKET },
    { .family = AF_INET, .type = SOCK_STREAM }, { .family = AF_INET6, .type = SOCK_STREAM },
};

static uint32_t work(uint32_t state)
{
    for (int i = 0; i < 3000000; i++)
        state = state * 1664525u + 1013904223u;
    return state;
}

static int asks(int k)
{
    int fd = socket(kind[k].family, kind[k].type, 0);
    MUST(fd >= 0 && connect(fd, &kind[k].name.any, kind[k].size) == 0);
    return fd;
}

static void listens(int k)
{
    union name *name = &kind[k].name;
    name->any.sa_family = (sa_family_t)kind[k].family, kind[k].size = sizeof *name;
    if (kind[k].family == AF_UNIX)
        strcpy(name->unix_.sun_path, k ? "packets" : "stream"), kind[k].size = sizeof name->unix_;
    else if (kind[k].family == AF_INET)
        name->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK), kind[k].size = sizeof name->in;
    else
        kind[k].size = sizeof name->in6;   /* at every address */
    int on = 1;                            /* as servers do: the last run's connections hold the port for a minute */
    MUST((kind[k].listens = socket(kind[k].family, kind[k].type, 0)) >= 0);
    MUST(setsockopt(kind[k].listens, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    MUST(bind(kind[k].listens, &name->any, kind[k].size) == 0 && listen(kind[k].listens, EACH + 3) == 0);
    MUST(getsockname(kind[k].listens, &name->any, &kind[k].size) == 0);
    if (kind[k].family == AF_INET6) {      /* asked by IPv4 */
        struct sockaddr_in by = { .sin_family = AF_INET, .sin_port = name->in6.sin6_port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        kind[k].family = AF_INET, name->in = by, kind[k].size = sizeof by;
    }
    for (int i = 0; i < EACH; i++)
        kind[k].client[i] = asks(k);
    MUST(shutdown(kind[k].client[EACH - 1], SHUT_WR) == 0);
}

static int accepted(int k)
{
    int fd = accept(kind[k].listens, NULL, NULL);
    MUST(fd >= 0);
    return fd;
}

static void accept_all(int k)
{
    char text[64];
    for (int i = 0; i < EACH; i++) {
        int fd = accepted(k), n;
        union name own, peer;
        socklen_t size = sizeof own, other = sizeof peer;
        MUST(getsockname(kind[k].client[i], &own.any, &size) == 0 && getpeername(fd, &peer.any, &other) == 0);
        if (k == 2)                        /* which of them: its port says it */
            printf("%d: port %d, ", i, own.in.sin_port == peer.in.sin_port);
        if (i == EACH - 1)
            MUST((n = (int)read(fd, text, sizeof text)) == 0);
        else
            MUST(write(kind[k].client[i], &i, sizeof i) == sizeof i && read(fd, &n, sizeof n) == sizeof n);
        sprintf(text, "%d %d", k, i);
        MUST(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
        MUST((n = (int)read(kind[k].client[i], text, sizeof text)) > 0);
        printf("%d of %d: '%.*s'\n", i, k, n, text);
    }
}

int main(void)
{
    uint32_t state = 1;
    int pipe_[2], status;
    char byte, text[16];
    MUST(pipe(pipe_) == 0);
    for (int k = 0; k < KINDS; k++)
        listens(k);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {                      /* asks in a folder of its own, by the parent's name */
        int fd[KINDS];
        for (int k = 0; k < KINDS; k++)
            fd[k] = asks(k);
        MUST(write(pipe_[1], "x", 1) == 1);
        for (int k = 0; k < KINDS; k++)
            MUST(read(fd[k], text, sizeof text) == 3 && !memcmp(text, "all", 3));
        _exit(7);
    }
    MUST(read(pipe_[0], &byte, 1) == 1);
    for (int i = 0; i < STEPS; i++) {
        state = work(state);
        printf("%d %u\n", i, state), fflush(stdout);
    }
    for (int k = 0; k < KINDS; k++) {
        accept_all(k);
        MUST(write(accepted(k), "all", 3) == 3);
        struct pollfd more = { kind[k].listens, POLLIN, 0 };
        printf("more: %d\n", poll(&more, 1, 0));
    }
    MUST(waitpid(child, &status, 0) == child);
    printf("child %d\n", WEXITSTATUS(status));
    return 0;
}
