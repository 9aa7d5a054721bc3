/* restore.c - the program comes back: in a new process of the same program file, before any of it has run.
 *
 * What cannot be mapped again goes to where it was (move.c); all else that the new process has is taken away but this library and
 * the run area; then the image's mappings are made, filled from the chain of images, and each thread jumps to where it stood.  Whatever fails
 * fails before or instead of that: a process that came back half does not exist.
 */
#include "memory/image_engine.h"
#include "base/opened_up.h"

#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>

enum { CONTROL = 2, LOCAL };               /* of the kernel's struct termios, words of flags */

static void read_tables(const char *path)
{
    struct mm_engine *e = ENGINE;
    struct mm_memory_image *image = &e->image;
    uint32_t words[4];                     /* magic, version, byte order */
    uint8_t library[MM_BUILD_ID];
    int fd = mm_image_open(path);
    uint64_t at = 0;
    mm_take(fd, words, sizeof words, &at);
    at = 24;
    mm_take(fd, image, sizeof *image, &at);
    mm_build_of_library(library);
    int other = words[2] != MM_IMAGE_VERSION;
    for (int i = 0; i < MM_BUILD_ID; i++)
        other |= image->library[i] != library[i];
    if (other || image->threads > THREADS || image->timers > MM_TIMERS || image->areas > AREAS || image->saved > SPANS
        || image->existing > SPANS || image->path_bytes > PATHS)
        mm_cannot_come_back("its image was made by another version", "");
    mm_take(fd, e->keep, image->program_bytes - sizeof e->layout, &at);
    mm_take(fd, &e->layout, sizeof e->layout, &at);
    mm_take(fd, e->thread, image->threads * sizeof e->thread[0], &at);
    mm_take(fd, e->timer, image->timers * sizeof e->timer[0], &at);
    mm_take(fd, e->then.area, image->areas * sizeof e->then.area[0], &at);
    at += image->saved * sizeof(struct mm_span);
    mm_take(fd, e->existing, image->existing * sizeof(struct mm_span), &at);
    image->existing = mm_in_order(e->existing, image->existing);
    mm_take(fd, e->then.path, image->path_bytes, &at);
    e->then.areas = image->areas;
    sys_close(fd);
}

/* What is moved must be there; nothing has been touched yet. */
static void check(void)
{
    struct mm_engine *e = ENGINE;
    if (mm_maps_read(&e->now, 0) < 0)
        mm_cannot_come_back("the present mappings cannot be read", "");
    for (uint64_t i = 0; i < e->then.areas; i++) {
        const struct mm_vma *v = &e->then.area[i];
        int found = v->kind != AREA_STACK && v->kind != AREA_SPECIAL;
        for (uint64_t j = 0; j < e->now.areas; j++) {
            const struct mm_vma *n = &e->now.area[j];
            found |= v->kind == AREA_SPECIAL && n->end - n->start == v->end - v->start
                  && own_equal(e->then.path + v->path, e->now.path + n->path);
            found |= v->kind == AREA_STACK && n->kind == AREA_STACK;
        }
        if (!found)
            mm_cannot_come_back("this kernel gives a process no ", e->then.path + v->path);
    }
}

static void unmap_all(void)
{
    struct mm_engine *e = ENGINE;
    int elsewhere = mm_lies_elsewhere(&e->layout);
    if (!elsewhere)
        sys(SYS_brk, e->image.brk);
    mm_maps_read(&e->now, 0);              /* the heap has grown */
    for (uint64_t i = 0; i < e->now.areas; i++) {
        const struct mm_vma *n = &e->now.area[i];
        if (n->kind == AREA_STACK)
            sys(SYS_madvise, n->start, n->end - n->start, MADV_DONTNEED);
        else if (n->kind == AREA_PLAIN)
            sys(SYS_munmap, n->start, n->end - n->start);
    }
    mm_move_rest(&e->layout, elsewhere);
    if ((uint64_t)sys(SYS_brk, e->image.brk) != e->image.brk)
        mm_cannot_come_back("the heap cannot be as large as it was", "");
}

struct plan {
    const struct mm_comeback *how;
    const struct mm_came_lock *locks;
    const struct mm_came_notice *notices;
    const struct mm_came_watch *watches;
    const struct mm_came_descriptor *descriptors;
    const struct mm_came_segment *segments;
    const char *images;                /* paths, the complete image's first */
};

static struct plan plan(void)
{
    const struct mm_comeback *c = (struct mm_comeback *)ENGINE->comeback;
    const struct mm_came_lock *locks = (const struct mm_came_lock *)(c + 1);
    const struct mm_came_notice *notices = (const struct mm_came_notice *)(locks + c->locks);
    const struct mm_came_watch *watches = (const struct mm_came_watch *)(notices + c->notices);
    const struct mm_came_descriptor *descriptors = (const struct mm_came_descriptor *)(watches + c->watches);
    const struct mm_came_segment *segments = (const struct mm_came_segment *)(descriptors + c->descriptors);
    return (struct plan){ c, locks, notices, watches, descriptors, segments, (const char *)(segments + c->segments) };
}

/* What stands for memory of several processes; NULL: nothing does. */
static const struct mm_came_segment *segment_of(const struct mm_vma *v)
{
    const struct mm_comeback *c = plan().how;
    const struct mm_came_segment *s = plan().segments;
    int kind = shared_kind(&ENGINE->then, v);
    for (uint32_t i = 0; kind && i < c->segments; i++)
        if (s[i].kind == (uint64_t)kind && s[i].inode == v->inode)
            return &s[i];
    return 0;
}

/* Where that came back whole, its image's pages went into memory of this process's own, which is mapped over: the same is there. */
static int map_whole(const struct mm_vma *v)
{
    const struct mm_came_segment *s = segment_of(v);
    if (!s || !(s->how & MM_CAME_WHOLE))
        return 0;
    if (sys(SYS_mmap, v->start, v->end - v->start, v->protection, MAP_FIXED | MAP_SHARED, s->fd, v->offset) != (long)v->start)
        mm_cannot_come_back("a mapping cannot be made: ", ENGINE->then.path + v->path);
    return 1;
}

/* Memory of System V is mapped as a whole, by a call of its own. */
static void attach(const struct mm_vma *v, long number)
{
    int how = v->protection & PROT_EXEC ? SHM_EXEC : 0;
    if (v->offset == 0 && sys(SYS_shmat, number, v->start, how) != (long)v->start)
        mm_cannot_come_back("System V shared memory cannot be mapped again", "");
}

/* When nothing of ours closes a descriptor of a queue any more, which would end it. */
static void notices_back(const struct mm_came_notice *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct { uint64_t value; int32_t signal, how, pad[12]; } event = { list[i].value, list[i].signal, list[i].how, { 0 } };
        if (sys(SYS_mq_notify, list[i].fd, &event) < 0)
            mm_cannot_come_back("it cannot be told of messages again", "");
    }
}

/* The kernel numbers them upwards.  path: of the first.  What this restart did to the files is no event: read away when nobody
 * opens one any more. */
static void watches_back(const struct plan *p, const char *path)
{
    const struct mm_came_watch *w = p->watches;
    int32_t number;
    for (uint32_t i = 0; i < p->how->watches; i++, path += own_length(path) + 1) {
        while ((number = (int32_t)sys(SYS_inotify_add_watch, w[i].fd, path, w[i].events)) >= 0 && number < w[i].number)
            sys(SYS_inotify_rm_watch, w[i].fd, number);
        if (number != w[i].number || mm_as_program.inotify_add_watch(w[i].fd, path, w[i].events) != number)
            mm_cannot_come_back("it cannot watch again: ", path);
    }
    mm_await_opened();
    for (uint32_t i = 0; i < p->how->watches; i++)
        for (int32_t waiting = 0; sys(SYS_ioctl, w[i].fd, FIONREAD, &waiting) == 0 && waiting > 0;)
            if (sys(SYS_read, w[i].fd, ENGINE->maps, MAPS) < 0)
                break;
}

/* What was removed and lived on in those that had it mapped: now all have. */
static void remove_segments(void)
{
    struct plan p = plan();
    for (uint32_t i = 0; i < p.how->segments && mm_this_member() == mm_memory_head->tree.member; i++)
        if (p.segments[i].how & MM_CAME_REMOVED)
            sys(SYS_shmctl, p.segments[i].fd, IPC_RMID, 0);
}

static void path_of_own(char path[40], int fd)
{
    char number[24] = { 0 }, *digits = own_decimal(number + 23, (uint64_t)fd);
    own_copy(path, "/proc/self/fd/", 14);
    own_copy(path + 14, digits, own_length(digits) + 1);
}

/* By a descriptor that may write: every process that has one does it before it runs, the first has done it for all. */
static void seal_segments(void)
{
    struct plan p = plan();
    for (uint32_t i = 0; i < p.how->segments; i++)
        if (p.segments[i].seals && p.segments[i].open >= 0) {
            char path[40];
            path_of_own(path, p.segments[i].open);
            long fd = sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
            if (fd < 0 || (sys(SYS_fcntl, fd, F_ADD_SEALS, p.segments[i].seals) < 0
                           && (uint32_t)sys(SYS_fcntl, fd, F_GET_SEALS, 0) != p.segments[i].seals))
                mm_cannot_come_back("a memory file cannot be sealed again", "");
            sys_close((int)fd);
        }
}

/* A private mapping's file.  Its mode may have been changed since it was opened: no library of the program's is there yet, and other
 * processes of the run do the same (base/opened_up.c). */
static long open_private(const char *path)
{
    long fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), at = fd == -EACCES ? sys_openat(AT_FDCWD, path, O_PATH | O_CLOEXEC, 0) : -1;
    struct stat st;
    char by[40];
    if (at < 0)
        return fd;
    path_of_own(by, (int)at);
    for (int tries = 0; fd == -EACCES && tries < MM_SHUT_TRIES; tries++) {
        if (sys(SYS_fstat, at, &st) < 0 || !S_ISREG(st.st_mode) || st.st_mode & S_ISGID)
            break;
        uint32_t mode = st.st_mode & 07777, opened = mode | MM_SHUT_BITS;
        int mine = opened != mode;
        if (mine && sys(SYS_fchmodat, AT_FDCWD, by, opened) < 0)
            break;
        fd = sys_openat(AT_FDCWD, by, O_RDONLY | O_CLOEXEC, 0);
        if (mine)
            sys(SYS_fchmodat, AT_FDCWD, by, mode);
    }
    sys_close((int)at);
    return fd;
}

static int maps_file(const struct mm_vma *v) { return ENGINE->then.path[v->path] == '/' && !shared_memory(&ENGINE->then, v); }

static void make_area(const struct mm_vma *v)
{
    const struct mm_tables *t = &ENGINE->then;
    const char *path = t->path + v->path;
    int protection = v->protection, flags = MAP_FIXED_NOREPLACE | (v->shared ? MAP_SHARED : MAP_PRIVATE);
    const struct mm_came_segment *of = segment_of(v);
    long r, fd = -1, segment = of && !(of->how & MM_CAME_WHOLE) ? of->fd : -1;
    if (v->kind == AREA_STACK) {
        *(volatile char *)v->start = 0;    /* it grows down to there */
        sys(SYS_madvise, v->start, MM_PAGE, MADV_DONTNEED);
        return;
    }
    if (shared_kind(t, v) == MM_SYSV_SHM) {
        attach(v, segment);
        return;
    }
    if (v->shared && maps_file(v)) {         /* its place, until the program's own calls can map it (program_back.c) */
        protection = PROT_NONE;
        flags = MAP_FIXED_NOREPLACE | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    } else {
        if (maps_file(v) && (fd = open_private(path)) < 0)
            mm_cannot_come_back("a file that it had mapped cannot be opened: ", path);
        if (fd < 0 && segment < 0)
            flags |= MAP_ANONYMOUS | (protection ? 0 : MAP_NORESERVE);
        if (v->shared || mm_has_pages(v))  /* for as long as it is being filled */
            protection |= PROT_READ | PROT_WRITE;
    }
    r = sys(SYS_mmap, v->start, v->end - v->start, protection, flags, fd >= 0 ? fd : segment, v->offset);
    if (r == -ENOMEM && !v->shared)        /* it may have been made so, or to be read only */
        r = sys(SYS_mmap, v->start, v->end - v->start, protection, flags | MAP_NORESERVE, fd, v->offset);
    if (r != (long)v->start)
        mm_cannot_come_back("a mapping cannot be made: ", path);
    if (fd >= 0)
        sys_close((int)fd);
}

static const struct mm_thread *main_thread(void)
{
    struct mm_engine *e = ENGINE;
    for (uint64_t i = 0; i < e->image.threads; i++)
        if (e->thread[i].tid == e->image.pid)
            return &e->thread[i];
    return 0;
}

static void kernel_and_library(const struct plan *p)
{
    struct mm_engine *e = ENGINE;
    const struct mm_thread *first = main_thread() ? main_thread() : &e->thread[0];
    own_copy(__start_mm_program, e->keep, e->image.program_bytes - sizeof e->layout);
    sys(SYS_arch_prctl, 0x1002, first->fs);
    if (main_thread()) {
        mm_thread_state_back(first);
        sys(SYS_set_tid_address, first->clear_tid);
    }
    mm_tid = (uint32_t)sys_gettid();   /* as in threads_back.c */
    mm_await_turn();
    mm_descriptors_back(p->descriptors, p->how->descriptors);
    for (uint64_t i = 0; i < e->then.areas; i++) {
        const struct mm_vma *v = &e->then.area[i];
        if (counts(v) && maps_file(v) && v->shared)
            mm_shared_file_back(v, e->then.path + v->path);
        else if (counts(v) && maps_file(v) && (i == 0 || !own_equal(e->then.path + v[-1].path, e->then.path + v->path)))
            mm_private_file_back(e->then.path + v->path);
    }
    mm_end_turn();
    mm_process_state_back(&e->image);
    mm_as_program.hold_term();
}

struct action { uint64_t handler, flags, restorer, mask; };

static uint64_t signal_bit(uint32_t number) { return 1ul << (number - 1); }

static uint64_t waiting_signals(void)
{
    uint64_t found = 0;
    sys(SYS_rt_sigpending, &found, 8);
    return found;
}

/* Its threads wait at the gate of thread_back, and every signal is blocked: SIGCONT is seen by its waiting.  While it is stopped
 * images of it are made here. */
static void stand_still(struct mm_member *this)
{
    struct action plain = { 0, 0x04000000, (uint64_t)mm_return_from_signal, 0 }, now;
    uint64_t own = signal_bit(this->stops);
    int stopped = 0;
    while (this->parent && !__atomic_load_n(&this->may_stop, __ATOMIC_ACQUIRE))
        sys_futex_wait(&this->may_stop, 0, 100000);
    if (this->stops != SIGSTOP) {
        sys(SYS_rt_sigaction, this->stops, &plain, &now, 8);
        sys(SYS_kill, sys_getpid(), this->stops);
        sys(SYS_rt_sigprocmask, SIG_UNBLOCK, &own, 0, 8);
        sys(SYS_rt_sigprocmask, SIG_BLOCK, &own, 0, 8);
        sys(SYS_rt_sigaction, this->stops, &now, 0, 8);
    }
    /* which does not stop a group that has no shell any more; and an image may have been asked for too early */
    while (!(waiting_signals() & signal_bit(SIGCONT))) {
        if (stopped && __atomic_load_n(&mm_my_memory->state, __ATOMIC_ACQUIRE) == MM_MEMORY_ASKED)
            mm_make_images(own_now());
        else
            stopped = sys(SYS_tgkill, sys_getpid(), sys_gettid(), SIGSTOP) == 0;
    }
}

/* As far as this user may. */
static void limits_back(const struct mm_comeback *c)
{
    static const int of[MM_LATE_LIMITS] = { RLIMIT_DATA, RLIMIT_STACK, RLIMIT_AS };
    for (int i = 0; i < MM_LATE_LIMITS; i++) {
        uint64_t now[2], soft = c->limit[i][0];
        if (sys(SYS_prlimit64, 0, of[i], c->limit[i], 0) == 0 || sys(SYS_prlimit64, 0, of[i], 0, now) < 0)
            continue;
        now[0] = soft < now[1] ? soft : now[1];
        sys(SYS_prlimit64, 0, of[i], now, 0);
    }
}

/* The terminal of whoever continues as the program had its own, but for the line itself: only where that took keys in another way, for
 * who types and how is the user's. */
static void terminal_back(const uint32_t *then)
{
    uint32_t now[9];
    long fd = then[CONTROL] ? sys_openat(AT_FDCWD, "/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC, 0) : -1;
    if (fd >= 0 && sys(SYS_ioctl, fd, TCGETS, now) == 0 && (now[LOCAL] ^ then[LOCAL]) & (ICANON | ECHO | ISIG | IEXTEN)) {
        uint32_t line = now[CONTROL];
        own_copy(now, then, sizeof now);
        now[CONTROL] = line;
        sys(SYS_ioctl, fd, TCSETS, now);
    }
    if (fd >= 0)
        sys_close((int)fd);
}

/* All are back, and from here on nothing fails: one that began to run could not be taken back. */
static void run_or_stop(const struct mm_thread *main, uint32_t others)
{
    struct mm_engine *e = ENGINE;
    struct mm_member *this = mm_this_member();
    limits_back(plan().how);
    if (this == mm_memory_head->tree.member)
        terminal_back(mm_memory_head->tree.terminal);
    mm_let_children_stop(&e->image);
    mm_threads_set(main, others);
    if (this->stops)
        stand_still(this);
    else
        mm_await_stopped();
    mm_release_others();
}

/* In the library where the program knows it. */
static void come_back_there(void)
{
    struct mm_engine *e = ENGINE;
    struct plan p = plan();
    const struct mm_comeback *c = p.how;
    const char *path = p.images;
    mm_handler_install();
    unmap_all();
    for (uint64_t i = 0; i < e->then.areas; i++)
        if (counts(&e->then.area[i]))
            make_area(&e->then.area[i]);
    for (uint32_t i = 0; i < c->images; i++, path += own_length(path) + 1)
        mm_fill_from(path);
    for (uint64_t i = 0; i < e->then.areas; i++) {
        const struct mm_vma *v = &e->then.area[i];
        if (map_whole(v))
            continue;
        if (v->kind == AREA_GUARD)
            sys(SYS_madvise, v->start, v->end - v->start, MM_GUARD_INSTALL);
        else if (v->kind == AREA_STACK || (v->kind == AREA_PLAIN && (v->protection & 3) != 3))
            sys(SYS_mprotect, v->start, v->end - v->start, v->protection);
    }
    e->pid = (uint32_t)sys_getpid();
    e->known_pid = (uint32_t)e->image.pid;
    e->renamed_count = 0;
    mm_rename_thread(e->known_pid, e->pid, main_thread() ? main_thread()->fs : 0);
    kernel_and_library(&p);
    MM_STOP("restore.locks");
    if (mm_locks_back(p.locks, c->locks) < 0)
        mm_cannot_come_back("another process has taken a lock that it had", "");
    notices_back(p.notices, c->notices);
    watches_back(&p, path);
    int counted = mm_maps_read(&e->now, 0) == 0 && mm_changes_begin(&e->now) == 0;
    e->last = counted ? e->image.index : 0;
    const struct mm_thread *main = main_thread();
    mm_my_memory->come_from = e->image.index;
    mm_note_parent();
    mm_await_all();
    mm_queued_back();
    remove_segments();
    seal_segments();
    uint32_t others = mm_threads_back(main);
    mm_timers_back(&e->image, mm_real_tid);
    mm_owners_back();
    mm_await_ready();
    run_or_stop(main, others);
    if (main)
        mm_jump(main->registers);
    __atomic_sub_fetch(&e->within, 1, __ATOMIC_RELEASE);
    for (;;)
        sys(SYS_exit, 0);
}

static void come_back(void)
{
    struct plan p = plan();
    const char *path = p.images;
    sys_mask_all();
    for (uint32_t i = 1; i < p.how->images; i++)
        path += own_length(path) + 1;
    read_tables(path);
    check();
    uint64_t fs;
    sys(SYS_arch_prctl, 0x1003, &fs);
    if (&__rseq_size && __rseq_size)       /* the kernel writes there whenever it likes */
        sys(SYS_rseq, fs + __rseq_offset, 32, 1, 0x53053053);
    mm_move_library(&ENGINE->layout, come_back_there);
}

/* The constructor's call: reads what `metamori restart` left in the run area, and does not return if there is anything. */
void mm_come_back(struct mm_member *member)
{
    struct mm_engine *e = ENGINE;
    char path[64] = "comeback.", number[24] = { 0 }, *digits = own_decimal(number + 23, member->known);
    own_copy(path + 9, digits, own_length(digits) + 1);
    MM_STOP("restore.begins");
    long fd = sys_openat(mm_area->folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0), n = 0, r;
    if (fd < 0)
        mm_cannot_come_back("nothing says how: ", path);
    while (n < COMEBACK && (r = sys(SYS_read, fd, e->comeback + n, COMEBACK - n)) > 0)
        n += r;
    sys_close((int)fd);
    mm_on_stack(come_back, stack_top(e->leader_stack, LEADER_STACK));
}
