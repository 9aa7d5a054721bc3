/* Calls of which the kernel or the C library does a part by itself: each case natively and under Metamori (corners.h).
 *   kernels_part CASE */
#include "corners.h"
#include <linux/openat2.h>
#include <mntent.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

/* openat2, which has no function in the C library: what it makes, cuts and refuses */
static void case_resolved_by_the_kernel(void)
{
    struct open_how how = {.flags = O_CREAT | O_RDWR, .mode = 0640, .resolve = RESOLVE_BENEATH};
    int folder = open("one", O_PATH | O_DIRECTORY), made;
    SAY(made = (int)syscall(SYS_openat2, folder, "made", &how, sizeof how));
    SAY(write(made, "made beneath", 12));
    SAY(syscall(SYS_openat2, folder, "../out", &how, sizeof how));
    SAY(syscall(SYS_openat2, folder, "/out", &how, sizeof how));
    how.resolve = RESOLVE_IN_ROOT;
    SAY(syscall(SYS_openat2, folder, "/../in/in_root", &how, sizeof how) >= 0);
    metamori_checkpoint();
    how.flags |= O_TRUNC;
    SAY(syscall(SYS_openat2, folder, "a", &how, sizeof how) >= 0);
    how.flags = O_CREAT | O_EXCL | O_WRONLY;
    SAY(syscall(SYS_openat2, folder, "made", &how, sizeof how));
    how.resolve = RESOLVE_NO_SYMLINKS, how.flags = O_RDWR, how.mode = 0;
    SAY(symlink("old", "link"));
    SAY(syscall(SYS_openat2, AT_FDCWD, "link", &how, sizeof how));
    how.resolve = 0;
    SAY(pwrite((int)syscall(SYS_openat2, AT_FDCWD, "link", &how, sizeof how), "by the link", 11, 100));
    how.mode = 0600;
    SAY(syscall(SYS_openat2, AT_FDCWD, "old", &how, sizeof how));
    how.mode = 0, how.flags |= 1ull << 40;
    SAY(syscall(SYS_openat2, AT_FDCWD, "old", &how, sizeof how));
    how.flags = O_CREAT | O_RDWR, how.mode = 010000;
    SAY(syscall(SYS_openat2, AT_FDCWD, "never", &how, sizeof how));
    SAY(syscall(SYS_openat2, AT_FDCWD, "never", &how, 4));
    SAY(syscall(SYS_openat2, AT_FDCWD, "never", NULL, sizeof how));
    how.resolve = RESOLVE_CACHED, how.flags = O_WRONLY | O_TRUNC, how.mode = 0;
    SAY(syscall(SYS_openat2, AT_FDCWD, "old", &how, sizeof how));
    how.flags = O_WRONLY | O_CREAT, how.mode = 0600;
    SAY(syscall(SYS_openat2, AT_FDCWD, "old", &how, sizeof how));
    SAY(unlinkat(folder, "made", 0));
    sums("old"), sums("one/a"), sums("one/in/in_root");
}

/* what a checkpoint writes is not the program's: its limit does not count */
static void case_checkpoint_below_a_size_limit(void)
{
    struct rlimit limit = {20000, RLIM_INFINITY};
    scatter(fd);
    SAY(setrlimit(RLIMIT_FSIZE, &limit));
    signal(SIGXFSZ, count);
    memset(room, 'l', 20000);
    for (int i = 0; i < 4; i++) {
        SAY(pwrite(fd, room, 20000, 0));
        SAY(metamori_checkpoint() < 0 && errno != ENOSYS);
    }
    SAY(pwrite(fd, room, 10, 20000));
    SAY(caught);
    getrlimit(RLIMIT_FSIZE, &limit);
    SAY(limit.rlim_cur);
    sums("old");
}

/* whoever watches a file is told of every write, and sees it */
static void case_watched(void)
{
    char event[1024];
    int watcher = inotify_init1(IN_NONBLOCK), reader = open("old", O_RDONLY);
    SAY(inotify_add_watch(watcher, "old", IN_MODIFY));
    SAY(inotify_add_watch(watcher, "nothing", IN_MODIFY));
    SAY(inotify_add_watch(watcher, (char *)1, IN_MODIFY));
    for (int i = 0; i < 3; i++) {
        SAY(pwrite(fd, "watched", 7, 100 + 5000 * i));
        SAY(read(watcher, event, sizeof event) > 0);
        SAY(read(watcher, event, sizeof event));
        metamori_checkpoint();
    }
    pread(reader, room, 20, 5090);
    say_bytes("seen", room, 20);
    int group = fanotify_init(FAN_NONBLOCK, O_RDONLY), twin = open("twin", O_RDWR);     /* an ordinary user gets none */
    SAY(fanotify_mark(group, FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, "twin"));
    SAY(pwrite(twin, "watched", 7, 100));
    SAY(read(group, event, sizeof event) > 0);
    sums("old");
}

static long ns(struct timespec t) { return t.tv_sec * 1000000000 + t.tv_nsec; }

/* a file's own time of change goes on when its bytes are redirected, and its mode is that in place */
static void case_mode_after_bytes(void)
{
    struct stat written, later;
    scatter(fd);
    fstat(fd, &written);
    usleep(20000);
    SAY(chmod("old", 0640));
    stat("old", &later);
    SAY(ns(later.st_mtim) == ns(written.st_mtim));
    SAY(ns(later.st_ctim) > ns(written.st_ctim));
    usleep(20000);
    SAY(pwrite(fd, "again", 5, 100));
    fstat(fd, &written);
    SAY(ns(written.st_ctim) > ns(later.st_ctim) && ns(written.st_mtim) > ns(later.st_mtim));
    sums("old");
}

/* a file that the C library opens by itself */
static void case_table_of_mounts(void)
{
    struct mntent one = {"device", "/where", "type", "options", 1, 2}, *read_back;
    FILE *table = fopen("table", "w");
    SAY(addmntent(table, &one));
    fclose(table);
    table = setmntent("table", "r");
    read_back = getmntent(table);
    puts(read_back ? read_back->mnt_dir : "nothing");
    SAY(fcntl(fileno(table), F_GETFD));
    SAY(endmntent(table));
    table = setmntent("table", "r+");
    SAY(addmntent(table, &one));
    SAY(endmntent(table));
    SAY(setmntent("none", "r") != NULL);
    SAY(setmntent("table", "wrong") != NULL);
    sums("table");
}

/* access mode 3: for ioctl only */
static void case_of_no_access(void)
{
    scatter(fd);
    int f = open("old", O_ACCMODE);
    struct iovec v = {room, 3};
    SAY(read(f, room, 3));
    SAY(pread(f, room, 3, 5 * PAGE + 200));
    SAY(write(f, "abc", 3));
    SAY(pwrite(f, "abc", 3, 5 * PAGE + 200));
    SAY(pwritev(f, &v, 1, 10));
    SAY(ftruncate(f, 3));
    SAY(fallocate(f, 0, SIZE, PAGE));
    SAY(fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
    SAY(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, f, 0) == MAP_FAILED);
    SAY(sendfile(fd, f, NULL, 10));
    SAY(lseek(f, 0, SEEK_END));
    sums("old");
    SAY(open("old", O_ACCMODE | O_TRUNC));
    SAY(lseek(f, 0, SEEK_END));
    sums("old");
    SAY(write(open("new", O_WRONLY | O_CREAT, 0600), "abc", 3));
    SAY(lseek(open("new", O_ACCMODE | O_TRUNC | O_CREAT, 0600), 0, SEEK_END));
}

/* Of nothing at all neither place nor address need be aligned. */
static void case_direct_nothing(void)
{
    scatter(fd);
    int f = open("old", O_RDWR | O_DIRECT);
    if (f < 0)
        return;
    SAY(pwrite(f, room, 0, 1));
    SAY(pwrite(f, room + 1, 0, 0));
    SAY(pread(f, room, 0, 5 * PAGE + 3));
    SAY(pread(f, room + 1, 0, 3));
    sums("old");
}

static void case_stream_closed_at_exec(void)
{
    FILE *f = fopen("old", "re");
    SAY(fcntl(fileno(f), F_GETFD));
    f = freopen("twin", "r+", f);
    SAY(fcntl(fileno(f), F_GETFD));
    fclose(f);
    f = fopen("old", "r");
    SAY(fcntl(fileno(f), F_SETFD, FD_CLOEXEC));
    f = freopen("twin", "r", f);
    SAY(fcntl(fileno(f), F_GETFD));
    f = freopen("old", "re", f);
    SAY(fcntl(fileno(f), F_GETFD));
    f = freopen(NULL, "r+", f);
    SAY(fcntl(fileno(f), F_GETFD));
    fclose(f);
}

static void case_folder_as_root(void)
{
    struct open_how how = {.flags = O_CREAT | O_RDWR, .mode = 0600, .resolve = RESOLVE_IN_ROOT};
    int dir = open("one", O_PATH | O_DIRECTORY);
    int f = syscall(SYS_openat2, dir, "/in/../../made", &how, sizeof how);
    SAY(write(f, "made", 4));
    metamori_checkpoint();
    SAY(write(f, "more", 4));
    SAY(write((int)syscall(SYS_openat2, dir, "/in/also", &how, sizeof how), "also", 4));
    sums("one/made");
    sums("one/in/also");
}

/* a pointer whose bytes end beyond all addresses; an empty path that stands for the open file */
static void case_no_such_memory(void)
{
    char *volatile beyond = (char *)-1;
    int file = open("one/a", O_PATH);
    scatter(fd);
    SAY(pwrite(fd, room, 100, 0));
    SAY(pread(fd, room, 100, 0));
    SAY(write(fd, beyond, 100));
    SAY(read(fd, beyond, 100));
    SAY(syscall(SYS_openat2, AT_FDCWD, "old", beyond, sizeof(struct open_how)));
    SAY(fchownat(fd, beyond, 0, 0, AT_EMPTY_PATH));
    SAY(syscall(452, file, beyond, 0604, AT_EMPTY_PATH));
    SAY(syscall(452, file, "", 0604, AT_EMPTY_PATH));
}

static void cut_by_another(const char *name, const char *size)
{
    fflush(stdout);
    pid_t pid = fork();
    if (!pid)
        execlp("truncate", "truncate", "-s", size, name, NULL), _exit(1);
    waitpid(pid, NULL, 0);
}

/* The memory of a call is a mapped file, and somebody cuts that: the kernel says EFAULT, and nobody dies. */
static void case_memory_that_is_cut(void)
{
    char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, open("twin", O_RDWR), 0), *at = map + 3 * PAGE;
    scatter(fd);
    for (int i = 0; i < 3; i++) {
        SAY(pwrite(fd, at, 100, 5 * PAGE + 200));
        SAY(pread(fd, at, 100, 5 * PAGE + 250));
        SAY(pwrite(fd, at, 5000, 5 * PAGE + 200));
        cut_by_another("twin", "4096");
        SAY(pwrite(fd, at, 100, 5 * PAGE + 200));
        SAY(pread(fd, at, 100, 5 * PAGE + 200));
        SAY(pwrite(fd, at, 5000, 5 * PAGE + 200));
        SAY(pwrite(fd, map + PAGE - 50, 100, 5 * PAGE + 200));
        cut_by_another("twin", "65536");
        metamori_checkpoint();
        at = mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
    }
    sums("old");
}

static void case_memory_that_is_guarded(void)
{
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(at, 'g', SIZE);
    scatter(fd);
    SAY(pwrite(fd, at, 100, 5 * PAGE + 200));
    SAY(madvise(at, PAGE, 102) < 0 ? munmap(at, PAGE) : 0);      /* MADV_GUARD_INSTALL, since Linux 6.13 */
    SAY(pwrite(fd, at, 100, 5 * PAGE + 200));
    SAY(pread(fd, at, 100, 5 * PAGE + 200));
    sums("old");
}

static int ends[2], twin;

static long moved(int how)
{
    loff_t at = 4090, to = 200;
    switch (how) {
    case 0: return copy_file_range(fd, &at, twin, &to, 9000, 0);
    case 1: return fallocate(fd, 0, 0, PAGE);
    case 2: return splice(fd, &at, ends[1], NULL, 100, 0);
    case 3: return splice(ends[0], NULL, fd, &at, 50, 0);
    default: return sendfile(twin, fd, &at, 9000);
    }
}

static void *cancelled_before(void *how)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    return (void *)moved((int)(long)how);
}

/* A thread ends at the calls that are cancellation points, and in the midst of none: the next checkpoint waits for no call. */
static void case_cancelled(void)
{
    pipe(ends), write(ends[1], room, 100);
    twin = open("twin", O_RDWR);
    scatter(fd), scatter(twin);
    for (long how = 0; how < 5; how++) {
        pthread_t thread;
        void *answer;
        printf("%ld: ", how);
        SAY(pthread_create(&thread, NULL, cancelled_before, (void *)how));
        SAY(pthread_join(thread, &answer));
        SAY((long)answer);
        metamori_checkpoint();
    }
    sums("old"), sums("twin");
}

/* descriptors that are sent from no memory, or from too little */
static void case_sent_from_nowhere(void)
{
    int pair[2];
    char *end = (char *)mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + PAGE;
    struct iovec v = { room, 1 };
    struct msghdr message = { .msg_iov = &v, .msg_iovlen = 1 };
    SAY(munmap(end, PAGE));
    SAY(mprotect(end - PAGE, PAGE, PROT_READ));
    SAY(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    void *at[] = { (void *)-1, (void *)1, end, end - 8 };
    for (int i = 0; i < 4; i++) {
        message.msg_control = at[i], message.msg_controllen = CMSG_SPACE(sizeof(int));
        SAY(sendmsg(pair[0], &message, 0));
        SAY(sendmsg(pair[0], at[i], 0));
        SAY(sendmmsg(pair[0], at[i], 1, 0));
    }
}

/* a lock's place from the end, where that is another one than in place */
static void case_locked_from_the_end(void)
{
    static const int sizes[] = {SIZE, 0, 3000, 2 * SIZE};
    static const struct { long start, length; } each[] = {{0, 10}, {-5, 3}, {7, 0}, {100, -20}, {-1000000, 5}, {INT64_MAX, 5}, {0, -1}};
    for (unsigned i = 0; i < 4; i++)
        for (unsigned j = 0; j < sizeof each / sizeof *each; j++) {
            struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = each[j].start, .l_len = each[j].length};
            struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
            ftruncate(fd, sizes[i]);
            printf("%d %u: ", sizes[i], j);
            SAY(fcntl(fd, F_OFD_SETLK, &lock));
            int other = open("old", O_RDWR);
            SAY(fcntl(other, F_OFD_GETLK, &asked));
            printf("%d [%ld, %ld)\n", asked.l_type, (long)asked.l_start, (long)asked.l_len);
            close(other);
            fcntl(fd, F_OFD_SETLK, &(struct flock){.l_type = F_UNLCK});
        }
}

static void told(int number, siginfo_t *info, void *context)
{
    (void)context;
    printf("signal %d, code %d, of this process: %d\n", number, info->si_code, info->si_pid == getpid() && info->si_uid == getuid());
}

/* who sends it: the kernel says the program itself */
static void case_size_limit_signals(void)
{
    struct sigaction action = {.sa_sigaction = told, .sa_flags = SA_SIGINFO};
    struct rlimit limit = {3 * PAGE, RLIM_INFINITY};
    sigaction(SIGXFSZ, &action, NULL);
    scatter(fd);
    SAY(setrlimit(RLIMIT_FSIZE, &limit));
    SAY(pwrite(fd, "x", 1, 3 * PAGE));
    SAY(ftruncate(fd, SIZE + 1));
}

/* the older call of the C library, of a descriptor */
static void case_times_without_a_name(void)
{
    struct timeval both[2] = {{1000, 5}, {2000, 7}};
    struct stat st;
    scatter(fd);
    SAY(futimesat(fd, NULL, both));
    fstat(fd, &st);
    SAY(st.st_mtime);
    SAY(futimesat(AT_FDCWD, NULL, both));
}

static int waits_from, waits_to;
static void *in_splice(void *unused)
{
    splice(waits_from, NULL, waits_to, NULL, 100, 0);
    return unused;
}

static void cancelled_in_splice(int from, int to)
{
    pthread_t thread;
    void *answer = NULL;
    struct timespec until;
    waits_from = from, waits_to = to;
    pthread_create(&thread, NULL, in_splice, NULL);
    usleep(100000);
    SAY(pthread_cancel(thread));
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    SAY(pthread_timedjoin_np(thread, &answer, &until));
    SAY(answer == PTHREAD_CANCELED);
}

/* a pipe with nothing in it, and one that is full */
static void case_cancelled_where_a_pipe_keeps_it_waiting(void)
{
    int none[2], full[2], new = open("new", O_RDWR | O_CREAT, 0644);
    pipe(none), pipe2(full, O_NONBLOCK);
    while (write(full[1], room, PAGE) > 0)
        ;
    fcntl(full[1], F_SETFL, 0);
    SAY(write(new, room, PAGE));
    scatter(fd);
    lseek(new, 0, SEEK_SET);
    cancelled_in_splice(none[0], fd), cancelled_in_splice(none[0], new);
    cancelled_in_splice(fd, full[1]), cancelled_in_splice(new, full[1]);
    SAY(write(none[1], "late", 4));
    SAY(splice(none[0], NULL, fd, &(off_t){7}, 100, 0));
    metamori_checkpoint();
    sums("old");
    fflush(stdout);
    _exit(0);                          /* one that was not cancelled would keep it */
}

static void both_ways(char *at)
{
    SAY(pwrite(fd, at, 20, 10));
    SAY(pread(fd, at, 20, 10));
}

/* what was there a moment ago, and went without a call to munmap */
static void case_memory_that_went(void)
{
    int id = shmget(IPC_PRIVATE, PAGE, 0600);
    char *attached = shmat(id, NULL, 0), *more = sbrk(4 * PAGE), *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    scatter(fd);
    both_ways(attached), both_ways(more), both_ways(own);
    SAY(shmctl(id, IPC_RMID, NULL));
    SAY(shmdt(attached));
    both_ways(attached);
    SAY(brk(more));
    both_ways(more);
    SAY(madvise(own, PAGE, MADV_DONTFORK));
    fflush(stdout);
    if (fork() == 0) {
        both_ways(own);
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    wait(&status);
    SAY(status);
}

static int handled;
static void fork_begins(void) { handled++; }

/* glibc's has no handlers of forks called, whatever its actions */
static void case_spawned_without_handlers(void)
{
    posix_spawn_file_actions_t actions;
    char *words[] = {"sh", "-c", "echo spawned >&0", NULL};
    int status = -1;
    pid_t child;
    pthread_atfork(fork_begins, fork_begins, fork_begins);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "new", O_WRONLY | O_CREAT | O_TRUNC, 0640);
    SAY(posix_spawn(&child, "/bin/sh", &actions, NULL, words, environ));
    waitpid(child, &status, 0);
    SAY(status);
    SAY(handled);
    sums("new");
}

/* whether this call has made the file; EINVAL before Linux 6.12 */
static void case_asked_who_made_it(void)
{
    enum { CREATED_QUERY = 1024 + 4 };
    int flags[] = {O_TRUNC, O_CREAT, O_CREAT | O_TRUNC, O_CREAT | O_TRUNC | O_APPEND};
    close(fd);
    for (int i = 0; i < 4; i++) {
        int old = open("old", O_RDWR | flags[i], 0640), new = open("new", O_RDWR | flags[i], 0640);
        SAY(fcntl(old, CREATED_QUERY));
        SAY(fcntl(new, CREATED_QUERY));
        SAY(write(old, "bytes", 5));
        close(old), close(new), unlink("new");
        metamori_checkpoint();
    }
    sums("old");
}

CASES = {
    CASE(resolved_by_the_kernel), CASE(checkpoint_below_a_size_limit), CASE(watched), CASE(mode_after_bytes),
    CASE(table_of_mounts), CASE(of_no_access), CASE(direct_nothing), CASE(stream_closed_at_exec), CASE(folder_as_root),
    CASE(no_such_memory), CASE(memory_that_is_cut), CASE(memory_that_is_guarded),
    CASE(cancelled), CASE(sent_from_nowhere), CASE(locked_from_the_end), CASE(size_limit_signals), CASE(times_without_a_name),
    CASE(cancelled_where_a_pipe_keeps_it_waiting), CASE(memory_that_went), CASE(spawned_without_handlers),
    CASE(asked_who_made_it),
};

MAIN
