/* proxy.c - one process in a run for all programs that our library is not in (docs/adr/0044).
 *
 * It is started by whoever executes the first of them (process/call_filter.c), is nobody's child, has a session of its own, and outlives
 * `metamori run`.  It is a process of the run while such a program lives: that is how the run knows that one does.
 *
 * The first thread sees programs come and go; others make their calls (proxy_threads.c).
 * A standby has every listener too: when the last holder of one goes, the kernel answers its programs with ENOSYS.  It waits
 * until the proxy was killed, and becomes it.  `metamori run` has them for the third time, and starts a proxy when both are gone.
 * All three have the letter box, in which a new listener lies until they have it: who puts it there waits for nobody.
 */
#include "start/proxy.h"

#include <stdlib.h>
#include <sys/file.h>
#include <linux/kcmp.h>
#include <sys/ioctl.h>
#include <sys/un.h>

#define PLACES MM_PROXY_PLACES
#define LISTENERS MM_PROXY_LISTENERS
#define BEHIND MM_PROXY_BEHIND
#define IDLE_MS 10000
#define TICK_MS 500
#define DEAD_AT_ONCE 16
#define AT_ONCE 32                     /* messages: the line takes about 200 */

#define DROPPED 0x10000u
#define KEPT 0x20000u                  /* with a descriptor's number; known to lifecycle/proxy.py, as DROPPED is */

static uint8_t taken_at[PLACES];
static int taken;
static char again;                     /* the standby of one that was killed, */
static char unread;                    /* which may not have done with a letter */
static int left_early;                 /* `metamori run` was there, and should have seen the run's end */

/* -- the standby ------------------------------------------------------------------------------------ */

static long send_with(int to, uint32_t word, int fd)
{
    char control[CMSG_SPACE(sizeof fd)] = { 0 };
    struct iovec v = { &word, sizeof word };
    struct msghdr message = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    *c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    if (fd < 0)
        message.msg_control = NULL, message.msg_controllen = 0;
    return sys(SYS_sendmsg, to, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* 0: nobody is there any more; -EAGAIN: nothing was said.  *fd: the first that came along, or -1. */
static long receive(int from, void *word, size_t bytes, int *fd, int how)
{
    char control[CMSG_SPACE(sizeof *fd)] = { 0 };
    struct iovec v = { word, bytes };
    struct msghdr message = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_LEN(sizeof *fd) };
    long r = sys(SYS_recvmsg, from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | how);
    struct cmsghdr *c = r > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    *fd = -1;
    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(c), sizeof *fd);
    return r;
}

/* A descriptor that goes by its number, which another may have just now. */
static void put_at(long fd, int number)
{
    long high = fd < 0 ? fd : sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, BEHIND);
    if (fd >= 0)
        sys_close((int)fd);
    if (high < 0 || sys(SYS_dup3, high, number, 0) < 0)
        sys(SYS_exit_group, 1);
    sys_close((int)high);
}

extern char **environ;

/* `metamori run` looks for us. */
static void wake_run(void)
{
    if (mm_run_is_watched(mm_area))
        sys(SYS_kill, mm_area->head->supervisor, SIGCHLD);
}

/* It hears what was said when the bell rings, or when we have ended; what is on its line until then is held by that.  To hear of
 * each program at once would cost it as much as that costs us. */
static void tell_standby(uint32_t word, int fd)
{
    static uint32_t told;
    uint64_t one = 1;
    send_with(MM_PROXY_PAIR, word, fd);
    if (++told % AT_ONCE == 0)
        sys(SYS_write, MM_PROXY_BELL, &one, sizeof one);
}

/* Both hear of a listener, or that it is no more: `metamori run` each second, and before its line is full. */
static void tell_keepers(uint32_t word, int fd)
{
    static uint32_t told;
    tell_standby(word, fd);
    send_with(MM_PROXY_KEEPER, word, fd);
    if (++told % AT_ONCE == 0)
        wake_run();
}

static void heard_of(uint32_t word, int fd)
{
    if (word & KEPT)
        sys(SYS_dup3, fd, MM_PROXY_KEEPER, 0);
    else if (word & DROPPED)
        sys_close((int)(LISTENERS + (word & ~DROPPED) % PLACES));
    else if (fd >= 0)
        sys(SYS_dup3, fd, LISTENERS + word % PLACES, 0);
    if (fd >= 0)
        sys_close(fd);
}

static void stand_by(void)
{
    char *argv[] = { "metamori-proxy", NULL };
    struct pollfd ends[2] = { { MM_PROXY_PAIR, 0, 0 }, { MM_PROXY_BELL, POLLIN, 0 } };
    uint64_t rang;
    uint32_t word;
    int fd;
    for (long heard = 1; heard; ) {
        sys(SYS_ppoll, ends, 2, NULL, 0, 8);
        sys(SYS_read, MM_PROXY_BELL, &rang, sizeof rang);
        while ((heard = receive(MM_PROXY_PAIR, &word, sizeof word, &fd, 0)) > 0)
            heard_of(word, fd);
        heard = heard == -EAGAIN;
    }
    int programs = mm_unborn(mm_area); /* or about to be */
    for (int i = 0; i < PLACES; i++)
        programs += sys(SYS_fcntl, LISTENERS + i, F_GETFD) >= 0;
    if (!programs)                     /* it ended because there was nothing more to do; or nobody would miss it */
        sys(SYS_exit_group, 0);
    for (char **e = environ; *e; e++)
        if (strncmp(*e, MM_PROXY_VARIABLE, sizeof MM_PROXY_VARIABLE - 1) == 0)
            (*e)[sizeof MM_PROXY_VARIABLE - 1] = '1';
    sys(SYS_execve, "/proc/self/exe", argv, environ);
    sys(SYS_exit_group, 127);
}

static long standby;

static void end_all(void) __attribute__((noreturn));
static void end_all(void)
{
    if (standby > 0)
        sys(SYS_kill, standby, SIGKILL);
    sys(SYS_shutdown, MM_PROXY_KEEPER, SHUT_RDWR);
    sys(SYS_exit_group, 0);
    __builtin_unreachable();
}

static void start_standby(void)
{
    int pair[2];
    while (sys(SYS_wait4, -1, 0, __WALL | WNOHANG, 0) > 0)
        ;
    put_at(sys(SYS_eventfd2, 0, O_NONBLOCK), MM_PROXY_BELL);
    if (sys(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    long other = sys(SYS_fcntl, pair[1], F_DUPFD_CLOEXEC, BEHIND), pid = sys(SYS_clone, 0, 0, 0, 0, 0);
    if (pid == 0) {
        put_at(other, MM_PROXY_PAIR);
        mm_area->folder = 0;           /* it is closed here: files of the run are found by their paths */
        sys(SYS_close_range, 3, MM_PROXY_BOX - 1);
        sys(SYS_close_range, MM_PROXY_BELL + 1, LISTENERS - 1);
        sys(SYS_close_range, BEHIND, ~0u);
        stand_by();
    }
    standby = pid;
    sys_close((int)other);
    sys_close(pair[1]);
    put_at(pair[0], MM_PROXY_PAIR);
}

/* -- programs come and go --------------------------------------------------------------------------------- */

static int is_over(void) { return __atomic_load_n(&mm_area->head->flags, __ATOMIC_SEQ_CST) & (MM_CLOSED | MM_OVER); }

/* Programs that end leave their slots to others; to look for them is to ask after each process of the run, and one waits here. */
static int join_again(void)
{
    static uint64_t began;
    static uint32_t joins;
    uint32_t pid = (uint32_t)sys_getpid();
    if (!mm_self_process) {
        if (!began)
            began = mm_start_time(pid);
        for (int dead = joins++ % DEAD_AT_ONCE == 0; !mm_self_process && dead < 2; dead++) {
            if (dead)
                mm_release_dead(mm_area);
            mm_self_process = mm_process_join(mm_area, pid, began, 0);
        }
        if (!mm_self_process)
            return 0;
        mm_self = mm_proc(mm_area, mm_self_process);
    }
    mm_self->outside = MM_OUTSIDE_PROXY;
    mm_self->leaving = 0;
    __atomic_store_n(&mm_area->head->untracked, 1, __ATOMIC_SEQ_CST);
    return 1;
}

/* From here on none is sent a letter.  0: somebody may be about to, or one is there. */
static int close_box(void)
{
    __atomic_and_fetch(&mm_area->head->proxy_places, ~MM_PROXY_OPEN, __ATOMIC_SEQ_CST);
    MM_STOP("proxy.closes");
    if (!mm_unborn(mm_area))
        return 1;
    __atomic_or_fetch(&mm_area->head->proxy_places, MM_PROXY_OPEN, __ATOMIC_SEQ_CST);
    return 0;
}

/* The last program has gone: from here on nobody waits for this process.  It may have been the last of the run. */
static void leave_alone(void)
{
    left_early = mm_run_is_watched(mm_area);
    if (!left_early)
        mm_last_out();
    if (is_over() && close_box())
        end_all();
    mm_process_leave(mm_area, mm_self_process);
    mm_self_process = 0;
}

/* Nobody saw the run's end where `metamori run` believed that we would, and we that it would.  1: nobody is left. */
static int look_at_run(void)
{
    if (left_early && !(mm_area->head->flags & MM_SUPERVISED)) {
        if (join_again())
            leave_alone();
    } else if (left_early && !mm_run_is_watched(mm_area)) {
        return 1;
    }
    return is_over() || sys(SYS_faccessat, AT_FDCWD, mm_area->store, F_OK) < 0;
}

/* How many there are, for those that come: counted anew, for who would count himself may be killed amid it. */
static void tell_places(void)
{
    uint32_t *places = &mm_area->head->proxy_places;
    __atomic_store_n(places, (*places & MM_PROXY_OPEN) | (uint32_t)taken, __ATOMIC_SEQ_CST);
}

static void drop_listener(int i)
{
    mm_proxy_forget(LISTENERS + i);
    sys_close(LISTENERS + i);
    taken_at[i] = 0;
    taken--;
    tell_places();
    tell_keepers(DROPPED | (uint32_t)i, -1);
}

/* What this process is to all others, and every listener. */
static void take_keeper(int line)
{
    if (sys(SYS_dup3, line, MM_PROXY_KEEPER, 0) < 0)
        return;
    tell_standby(KEPT, MM_PROXY_KEEPER);
    for (int fd = MM_PROXY_BOX; fd <= MM_PROXY_SHARED; fd++)
        send_with(MM_PROXY_KEEPER, KEPT | (uint32_t)fd, fd);
    for (int i = 0; i < PLACES; i++)
        if (taken_at[i])
            send_with(MM_PROXY_KEEPER, (uint32_t)i, LISTENERS + i);
}

/* By a proxy that was killed before the letter was gone. */
static int is_taken(int listener)
{
    uint32_t me = (uint32_t)sys_getpid();
    for (int i = 0; i < PLACES; i++)
        if (taken_at[i] && sys(SYS_kcmp, me, me, KCMP_FILE, listener, LISTENERS + i) == 0)
            return 1;
    return 0;
}

/* 0: not now. */
static int take_listener(int listener)
{
    int i = 0;
    while (i < PLACES && taken_at[i])
        i++;
    if (i == PLACES || !(mm_self_process || join_again()) || sys(SYS_dup3, listener, LISTENERS + i, 0) < 0)
        return 0;
    taken_at[i] = 1;
    taken++;
    tell_places();
    mm_proxy_shared->confined[i] = mm_proxy_shared->elsewhere[i] = mm_proxy_shared->own_umask[i] = 0;
    tell_keepers((uint32_t)i, LISTENERS + i);
    MM_STOP("proxy.told");
    mm_proxy_watch(LISTENERS + i);
    return 1;
}

/* Who is killed amid it leaves a listener in the box, to a successor.  With the letter its birth ends.  0: there is none. */
static int read_letter(void)
{
    char what = 0;
    int fd;
    if (receive(MM_PROXY_BOX, &what, 1, &fd, MSG_PEEK) < 0)
        return 0;
    int is_program = what == MM_PROXY_LISTENER && fd >= 0;
    MM_STOP("proxy.reads");
    if (is_program && !(unread && is_taken(fd)) && !take_listener(fd)) {
        sys_close(fd);
        sys_pause_us(2000);
        return 1;
    }
    unread = 0;
    sys(SYS_recvfrom, MM_PROXY_BOX, &what, 1, MSG_DONTWAIT, 0, 0);
    if (fd >= 0 && what == MM_PROXY_KEEPS)
        take_keeper(fd);
    else if (fd >= 0 && what == MM_PROXY_LIVES)
        send_with(fd, taken > 0, -1);
    if (fd >= 0)
        sys_close(fd);
    return 1;
}

/* -- the process ------------------------------------------------------------------------------------ */

static void map_calls(void)
{
    long at = sys(SYS_mmap, 0, sizeof *mm_proxy_shared, PROT_READ | PROT_WRITE, MAP_SHARED, MM_PROXY_SHARED, 0);
    if (at < 0 && at > -4096)
        sys(SYS_exit_group, 1);
    mm_proxy_shared = (void *)at;
}

static void first_of_all(const char *store)
{
    char path[4200], other = MM_PROXY_NO;
    snprintf(path, sizeof path, "%s/run/proxy.lock", store);
    long lock = sys_openat(AT_FDCWD, path, O_RDWR | O_CREAT, 0600);
    if (lock < 0)
        sys(SYS_exit_group, 1);
    if (sys(SYS_flock, lock, LOCK_EX | LOCK_NB) < 0) {
        sys(SYS_write, MM_PROXY_READY, &other, 1);
        sys(SYS_exit_group, 0);        /* another is first */
    }
    put_at(lock, MM_PROXY_LOCK);
    put_at(sys(SYS_memfd_create, "calls", 0), MM_PROXY_SHARED);
    put_at(sys_openat(AT_FDCWD, "/dev/null", O_RDWR, 0), MM_PROXY_KEEPER);     /* until there is one */
    sys(SYS_ftruncate, MM_PROXY_SHARED, sizeof *mm_proxy_shared);
    put_at(sys(SYS_socket, AF_UNIX, SOCK_DGRAM, 0), MM_PROXY_BOX);
}

/* What programs need to know is there before they find the box. */
static void open_box(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    __atomic_store_n(&mm_area->head->proxy_places, 0, __ATOMIC_SEQ_CST);
    mm_rights_here(mm_area->head->proxy_rights);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/proxy", mm_area->folder);
    sys(SYS_unlinkat, mm_area->folder, "proxy", 0);
    if (sys(SYS_bind, MM_PROXY_BOX, &address, sizeof address) < 0)
        end_all();
}

int mm_proxy_begin(const char *store)
{
    const char *how = getenv("METAMORI_PROXY");
    struct rlimit files;
    if (!how)
        return 0;
    sys_mask_all();
    again = unread = *how == '1';
    if (sys(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &files) == 0) {
        files.rlim_cur = MM_PROXY_FILES;
        if (files.rlim_max < MM_PROXY_FILES || sys(SYS_prlimit64, 0, RLIMIT_NOFILE, &files, 0) < 0)
            sys(SYS_exit_group, 1);
    }
    if (!again)
        first_of_all(store);
    map_calls();
    return 1;
}

static void find_listeners(void)
{
    for (int i = 0; i < PLACES; i++)
        if (sys(SYS_fcntl, LISTENERS + i, F_GETFD) >= 0) {
            taken_at[i] = 1;
            taken++;
            mm_proxy_watch(LISTENERS + i);
        }
    tell_places();
}

/* What happens next, of all that may.  0: nothing, for some time. */
static int serve_one_round(void)
{
    struct pollfd all[2 + PLACES] = { { MM_PROXY_BOX, POLLIN, 0 }, { MM_PROXY_PAIR, 0, 0 } };
    int n = 2;
    for (int i = 0; i < PLACES; i++)
        if (taken_at[i])
            all[n++] = (struct pollfd){ LISTENERS + i, 0, 0 };
    struct timespec tick = { 0, TICK_MS * 1000000L };
    if (sys(SYS_ppoll, all, n, taken ? NULL : &tick, 0, 8) <= 0)
        return 0;
    for (int k = 2; k < n; k++)
        if (all[k].revents)
            drop_listener(all[k].fd - LISTENERS);
    if (all[1].revents & (POLLHUP | POLLERR)) {
        start_standby();
        for (int i = 0; i < PLACES; i++)
            if (taken_at[i])
                tell_standby((uint32_t)i, LISTENERS + i);
    }
    if (all[0].revents & POLLIN)
        read_letter();
    return 1;
}

void mm_proxy_serve(int joined)
{
    char ready = MM_PROXY_GO, blind = MM_PROXY_BLIND;
    mm_holding++;                      /* for good: no program has handlers here */
    mm_asker_gone = mm_asker_is_gone;
    if (joined < 0)
        end_all();
    start_standby();
    if (!join_again() || !mm_proxy_threads_begin())
        end_all();
    find_listeners();
    if (!again) {
        int looks = mm_may_look_into((int)standby);
        if (!looks && standby > 0) {   /* the calls are not there that look into a process */
            mm_area->head->calls_hidden = 1;
            sys(SYS_write, MM_PROXY_READY, &blind, 1);
        }
        if (!looks)
            end_all();
        open_box();
    }
    __atomic_or_fetch(&mm_area->head->proxy_places, MM_PROXY_OPEN, __ATOMIC_SEQ_CST);
    if (!again) {
        sys(SYS_write, MM_PROXY_READY, &ready, 1);
        sys_close(MM_PROXY_READY);
        wake_run();
    }
    for (int idle = 0;; ) {
        if (serve_one_round())
            idle = 0;
        if (taken || read_letter())
            continue;
        if (mm_self_process && mm_proxy_is_idle()) {
            leave_alone();
        } else if (!mm_self_process) {
            int over = look_at_run(), long_ago = idle >= IDLE_MS;
            if (((over || long_ago) && close_box()) || (over && long_ago))     /* who had a place may have been killed */
                end_all();
            idle += long_ago ? 0 : TICK_MS;
        }
    }
}
