/* passing.c - descriptors that were sent over unix sockets and are received STEPS steps later: what is printed depends on
 * nothing but the program, also after it was brought back.
 *
 * On their way, closed by whoever sent them: a file, ends of pipes, an eventfd twice, shared memory, a socket in whose own
 * queue others wait; and one that the sender keeps, whose position both move.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS 40
#define MOST 8
#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

static void send_with(int channel, const char *text, int count, ...)
{
    char control[CMSG_SPACE(sizeof(int) * MOST)] = { 0 };
    struct iovec v = { (void *)text, strlen(text) };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count) };
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    __builtin_va_list list;
    __builtin_va_start(list, count);
    for (int i = 0, fd; i < count; i++) {
        fd = __builtin_va_arg(list, int);
        memcpy(CMSG_DATA(h) + sizeof fd * (size_t)i, &fd, sizeof fd);
    }
    __builtin_va_end(list);
    MUST(sendmsg(channel, &m, 0) == (ssize_t)strlen(text));
}

/* Says what came, at most so many bytes, and how many descriptors, which are in got. */
static int got[MOST];
static int receive(const char *name, int channel, size_t most)
{
    char text[64], control[CMSG_SPACE(sizeof(int) * MOST)];
    struct iovec v = { text, most };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    ssize_t n = recvmsg(channel, &m, MSG_DONTWAIT);
    int count = 0;
    struct cmsghdr *h = n < 0 ? NULL : CMSG_FIRSTHDR(&m);
    if (h) {
        count = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(got, CMSG_DATA(h), sizeof(int) * (size_t)count);
    }
    printf("%s: '%.*s' with %d\n", name, (int)(n < 0 ? 0 : n), text, count);
    return count;
}

static void say(const char *name, int fd)
{
    char text[64];
    ssize_t n = read(fd, text, sizeof text);
    printf("%s: '%.*s' then ", name, (int)(n < 0 ? 0 : n), text);
    n = read(fd, text, sizeof text);
    printf("%d, flags %o\n", n < 0 ? -errno : (int)n, fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
}

static int named(int type, const char *name)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, type, 0);
    strcpy(at.sun_path, name);
    MUST(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

static uint32_t work(uint32_t state)
{
    for (int i = 0; i < 3000000; i++)
        state = state * 1664525u + 1013904223u;
    return state;
}

static int kept, stream[2], packets[2], datagrams;

static void all_sent(void)
{
    int file, pipe_[2], event, memory, inner[2], empty[2];
    char *shared;
    MUST((file = open("file", O_RDWR | O_CREAT | O_APPEND, 0644)) >= 0 && write(file, "what was written before", 23) == 23);
    MUST(lseek(file, 9, SEEK_SET) == 9 && flock(file, LOCK_EX) == 0);
    MUST((kept = open("kept", O_RDWR | O_CREAT, 0644)) >= 0 && write(kept, "0123456789", 10) == 10 && lseek(kept, 2, SEEK_SET) == 2);
    MUST(pipe(pipe_) == 0 && write(pipe_[1], "in the pipe", 11) == 11 && pipe(empty) == 0);
    MUST((event = eventfd(5, EFD_NONBLOCK)) >= 0);
    MUST((memory = memfd_create("memory", 0)) >= 0 && ftruncate(memory, 8192) == 0);
    MUST((shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0)) != MAP_FAILED);
    strcpy(shared + 4096, "in memory");
    MUST(munmap(shared, 8192) == 0 && lseek(memory, 4096, SEEK_SET) == 4096);
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, inner) == 0);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets) == 0);

    MUST(write(stream[0], "ab", 2) == 2);
    send_with(stream[0], "cde", 2, file, pipe_[0]);
    send_with(stream[0], "f", 3, event, kept, event);
    MUST(write(stream[0], "gh", 2) == 2);
    send_with(inner[0], "within", 4, memory, pipe_[1], empty[1], memory);
    MUST(send(packets[0], "one", 3, 0) == 3);
    send_with(packets[0], "two", 2, inner[1], empty[0]);
    MUST(send(packets[0], "three", 5, 0) == 5);
    datagrams = named(SOCK_DGRAM, "to");
    int from = named(SOCK_DGRAM, "from");
    struct sockaddr_un at = { .sun_family = AF_UNIX, .sun_path = "to" };
    MUST(connect(from, (struct sockaddr *)&at, sizeof at) == 0);
    send_with(from, "datagram", 2, kept, stream[1]);
    close(file), close(pipe_[0]), close(pipe_[1]), close(event), close(memory), close(inner[0]), close(inner[1]), close(empty[0]), close(empty[1]);
}

static void all_received(void)
{
    uint64_t count = 0;
    char text[64] = "";
    receive("stream", stream[1], 2);
    MUST(receive("stream", stream[1], 1) == 2);
    int file = got[0], pipe_ = got[1], again = open("file", O_RDWR);
    printf("locked %d\n", flock(again, LOCK_EX | LOCK_NB) < 0 ? errno : 0);
    say("file", file);
    MUST(write(file, " and after", 10) == 10);
    MUST(receive("stream", stream[1], 60) == 3);
    MUST(eventfd_read(got[0], &count) == 0);
    printf("event %d, then %d\n", (int)count, eventfd_read(got[2], &count));
    MUST(lseek(got[1], 1, SEEK_CUR) == 3 && read(kept, text, 2) == 2 && lseek(got[1], 0, SEEK_CUR) == 5);
    printf("kept %s\n", text);
    receive("stream", stream[1], 60);

    receive("packet", packets[1], 60);
    MUST(receive("packet", packets[1], 60) == 2);
    int inner = got[0], empty = got[1];
    receive("packet", packets[1], 60);
    MUST(receive("inner", inner, 60) == 4);
    MUST(lseek(got[3], 4096, SEEK_SET) == lseek(got[0], 0, SEEK_CUR));
    say("memory", got[0]);
    MUST(write(got[1], "; more", 6) == 6 && close(got[1]) == 0 && write(got[2], "through", 7) == 7 && close(got[2]) == 0);
    say("pipe", pipe_), say("empty", empty);
    MUST(recv(inner, text, sizeof text, MSG_DONTWAIT) < 0);
    printf("inner: %d\n", errno);

    MUST(receive("named", datagrams, 60) == 2);
    MUST(read(got[0], text, 2) == 2 && write(stream[0], "twice", 5) == 5);
    printf("kept %.2s\n", text);
    MUST(fcntl(got[1], F_SETFL, O_NONBLOCK) == 0);
    say("stream", got[1]);
}

int main(void)
{
    uint32_t state = 1;
    all_sent();
    pid_t child = fork();                  /* has all that is open, too, and waits */
    MUST(child >= 0);
    for (int i = 0; i < STEPS; i++) {
        state = work(state);
        if (child)
            printf("%d %u\n", i, state), fflush(stdout);
    }
    if (child == 0) {
        printf("%u\n", state);
        close(stream[0]), close(packets[0]);
        _exit(7);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    all_received();
    printf("child %d\n", WEXITSTATUS(status));
    return 0;
}
