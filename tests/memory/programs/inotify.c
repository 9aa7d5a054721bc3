/* inotify.c - watches of files and folders; what is printed depends on nothing but the program, also after it was brought back.
 *
 *   inotify work         a child writes files and makes some, this process says what it hears of; the numbers of its watches have
 *                        gaps, some were made under another folder or by a link
 *   inotify WORD         waits for the file "go"; unread: with an event; moved: the watched file has another name
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS 40
#define MUST(x) do { if (!(x)) { fprintf(stderr, "%d: %s: %s\n", __LINE__, #x, strerror(errno)); _exit(99); } } while (0)

static uint32_t work(uint32_t state)
{
    for (int i = 0; i < 15000000; i++)
        state = state * 1664525u + 1013904223u;
    return state;
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    MUST(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

/* Of one event of the descriptor. */
static void say(int watcher)
{
    char room[4096] __attribute__((aligned(8)));
    ssize_t n = read(watcher, room, sizeof room);
    MUST(n > 0);
    for (char *p = room; p < room + n; p += sizeof(struct inotify_event) + ((struct inotify_event *)p)->len) {
        struct inotify_event *e = (struct inotify_event *)p;
        printf("watch %d: %x %s\n", e->wd, e->mask, e->len ? e->name : "");
    }
}

/* Waits for a byte, does something, says that it is done: its parent reads all events in between. */
static int changes(int asked, int done)
{
    char step, name[32];
    uint32_t state = 1;
    while (read(asked, &step, 1) == 1) {
        state = work(state);
        snprintf(name, sizeof name, "folder/%d", step);
        step % 4 == 0 ? put("old", "more\n") : step % 4 == 1 ? put(name, "new\n") : step % 4 == 2 ? put("other", "x")
                      : (void)rename("folder/target", "folder/moved"), (void)rename("folder/moved", "folder/target");
        MUST(write(done, &step, 1) == 1);
    }
    return state ? 5 : 6;      /* used, or the compiler leaves the work out */
}

static void works(void)
{
    int watcher = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), second = inotify_init1(0), shared = dup(second), asked[2], done[2];
    MUST(watcher >= 0 && second >= 0 && shared >= 0 && pipe(asked) == 0 && pipe(done) == 0);
    mkdir("folder", 0755), put("old", "old\n"), put("other", "y"), put("folder/target", "t");
    MUST(symlink("folder/target", "link") == 0);
    for (int i = 0; i < 20; i++) {         /* numbers with gaps */
        int gone = inotify_add_watch(watcher, ".", IN_ATTRIB);
        MUST(gone == 3 * i + 1 && inotify_rm_watch(watcher, gone) == 0);
        MUST(inotify_rm_watch(watcher, inotify_add_watch(watcher, "other", IN_ATTRIB)) == 0);
        MUST(inotify_rm_watch(watcher, inotify_add_watch(watcher, "folder", IN_ATTRIB)) == 0);
    }
    for (char room[4096]; read(watcher, room, sizeof room) > 0;)
        ;
    int folder = inotify_add_watch(watcher, "folder", IN_CREATE | IN_MOVE), link = inotify_add_watch(second, "link", IN_MOVE_SELF);
    int old = inotify_add_watch(second, "./folder/../old", IN_MODIFY | IN_CLOSE_WRITE);
    MUST(inotify_rm_watch(watcher, inotify_add_watch(watcher, "other", IN_ATTRIB)) == 0);
    say(watcher);
    int by_link = inotify_add_watch(watcher, "link", IN_DONT_FOLLOW | IN_ATTRIB), other = inotify_add_watch(watcher, "other", IN_ACCESS);
    MUST(inotify_add_watch(watcher, "other", IN_MASK_ADD | IN_MODIFY) == other);
    printf("%d %d %d %d %d\n", folder, link, old, by_link, other);
    int poll = epoll_create1(0);
    struct epoll_event events[2] = { { .events = EPOLLIN, .data.fd = watcher }, { .events = EPOLLIN, .data.fd = second } };
    MUST(epoll_ctl(poll, EPOLL_CTL_ADD, watcher, &events[0]) == 0 && epoll_ctl(poll, EPOLL_CTL_ADD, shared, &events[1]) == 0);
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        close(asked[1]), close(done[0]);
        _exit(changes(asked[0], done[1]));
    }
    close(asked[0]), close(done[1]);
    for (char step = 0; step < STEPS; step++) {
        char said;
        MUST(write(asked[1], &step, 1) == 1 && read(done[0], &said, 1) == 1 && said == step);
        for (int n; (n = epoll_wait(poll, events, 1, 0)) != 0;)
            if (n > 0)
                say(events[0].data.fd);
    }
    close(asked[1]);
    int status;
    MUST(wait(&status) == pid);
    MUST(chmod("other", 0600) == 0 && unlink("link") == 0);
    for (int n; (n = epoll_wait(poll, events, 1, 0)) != 0;)
        if (n > 0)
            say(events[0].data.fd);
    printf("status %d\n", WEXITSTATUS(status));
}

static void waits(const char *what)
{
    int watcher = inotify_init();
    put("watched", "x");
    MUST(watcher >= 0 && inotify_add_watch(watcher, "watched", IN_MODIFY) == 1);
    if (strcmp(what, "unread") == 0)
        put("watched", "y");
    if (strcmp(what, "moved") == 0)
        MUST(rename("watched", "elsewhere") == 0);
    puts("ready");
    while (access("go", F_OK) != 0)
        usleep(20000);
    if (strcmp(what, "unread") == 0)
        say(watcher);
    puts("done");
}

int main(int count, char **words)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    count < 2 || strcmp(words[1], "work") == 0 ? works() : waits(words[1]);
    return 0;
}
