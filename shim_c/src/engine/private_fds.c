/* private_fds.c - descriptors of our own in the program's table: the disk buffer, and files that the program's own descriptors
 * cannot read or write.
 */
#include "engine/engine.h"

/* One more descriptor per file, never closed while the program has one of its own: closing any descriptor of a file
 * drops the process's POSIX locks on it.  Used where the program's own cannot read (or write) it.
 * Found by the PIF's slot, in the next free place from slot % READERS on; changed under readers_lock. */
enum { READERS = 1024, PROBES = 32 };
static LARGE struct reader { uint32_t slot; int fd, locked, writes; } readers[READERS];    /* locked: see mm_locking */
static uint32_t readers_lock, readers_count;
void *mm_readers_table(size_t *bytes) { *bytes = sizeof readers; return readers; }
static LARGE uint8_t numbered[READERS];        /* by a number's remainder: one of them may have had it */
static int none_open(void) { return __atomic_load_n(&readers_count, __ATOMIC_ACQUIRE) == 0; }

/* Files that this process has locked with fcntl or lockf: their readers say so.  Those that were not tracked then, or could have
 * none, by inode: how often, at most MANY. */
#define MANY 255
static uint8_t locked_before[READERS];
int mm_any_locked;

static void note_number(int fd)
{
    mm_note_own(fd);
    numbered[(unsigned)fd % READERS] = 1;
}

/* Asked of every number as high as ours, which many of the program's may be. */
int mm_among_ours(int fd)
{
    if (fd == mm_buffer_fd || fd == mm_watch_fd || fd == mm_birth_fd || fd == mm_report_fd || (mm_area && fd == mm_area->folder)
        || fd == mm_uffd)
        return 1;
    for (int i = 0; i < MM_SPARE; i++)
        if (mm_spare(i) == fd)
            return 1;
    for (int i = 0; numbered[(unsigned)fd % READERS] && i < READERS; i++)
        if (readers[i].slot && readers[i].fd == fd)
            return 1;
    return 0;
}

/* Move one of our descriptors out of the program's way: no higher than that takes, since the kernel's table of a process is
 * as long as its highest number says, and is copied by every fork. */
static int from(int fd, long floor)
{
    long up = sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, floor);
    if (up >= 0)
        sys_close(fd);
    return (int)up;
}

#define AT_ONCE (2 + MM_SPARE)                  /* descriptors that a process of the run always has */
#define FEW 4096                                /* a table of so many costs a fork little */

static int high(int fd)
{
    int up = -1;
    uint64_t mask = sys_mask_all(), hard, soft = mm_lift(MM_FILES_LIMIT, &hard);
    if (soft < hard)                            /* beyond the program's limit, which does not count ours */
        up = from(fd, soft < 100 ? 100 : soft <= FEW ? (long)soft : 1000);
    mm_lift_end(MM_FILES_LIMIT);
    sys_mask_back(mask);
    for (long floor = 1000; up < 0 && floor >= 100; floor /= 2)
        up = from(fd, floor);
    for (long top = (long)hard - AT_ONCE; up < 0 && top > fd && top < 200; top -= AT_ONCE)
        up = from(fd, top);                     /* nobody may raise it: at least the last numbers of all */
    return mm_note_own(up >= 0 ? up : fd);
}

int mm_high_fd(int fd) { return high(fd); }

/* Beside the buffer's. */
void mm_hold_spares(void)
{
    for (int i = 0; i < MM_SPARE; i++) {
        int fd = (int)sys(SYS_fcntl, mm_buffer_fd, F_DUPFD_CLOEXEC, mm_buffer_fd);
        if (fd < 0 && (fd = (int)sys(SYS_fcntl, mm_buffer_fd, F_DUPFD_CLOEXEC, 3)) >= 0)
            fd = high(fd);
        mm_spare_keep(i, fd);
    }
}

long mm_open_own(const char *path, int flags) { return mm_open_spare(AT_FDCWD, path, flags, 0); }

/* The lowest of our descriptors that is not below from, or -1. */
int mm_next_own(int from)
{
    int best = mm_buffer_fd >= from ? mm_buffer_fd : -1, memory = mm_uffd;
    if (memory >= from && (best < 0 || memory < best))
        best = memory;
    if (mm_watch_fd >= from && (best < 0 || mm_watch_fd < best))
        best = mm_watch_fd;
    if (mm_birth_fd >= from && (best < 0 || mm_birth_fd < best))
        best = mm_birth_fd;
    if (mm_report_fd >= from && (best < 0 || mm_report_fd < best))
        best = mm_report_fd;
    for (int i = 0; i < MM_SPARE; i++)
        if (mm_spare(i) >= from && (best < 0 || mm_spare(i) < best))
            best = mm_spare(i);
    for (int i = 0; !none_open() && i < READERS; i++)
        if (readers[i].slot && readers[i].fd >= from && (best < 0 || readers[i].fd < best))
            best = readers[i].fd;
    if (mm_area && mm_area->folder >= from && mm_area->folder > 0 && (best < 0 || mm_area->folder < best))
        best = mm_area->folder;
    return best;
}

/* No number is free: that of a spare one, which is given up.  0: this one is a spare itself; -EBADF: there is none left. */
static long instead_of_spare(int fd)
{
    for (int i = 0; i < MM_SPARE; i++) {
        int number = mm_spare(i);
        if (number < 0)
            continue;
        mm_spare_keep(i, -1);
        return number == fd ? 0 : sys(SYS_dup3, fd, number, O_CLOEXEC);
    }
    return -EBADF;
}

/* The program wants this number for itself.  0, or -errno: it cannot have it. */
int mm_move_own(int fd)
{
    if (!mm_is_ours(fd))
        return 0;
    long up = sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, fd + 1);
    if (up < 0)
        up = sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
    if (up < 0)
        up = instead_of_spare(fd);
    if (up <= 0)
        return (int)up;
    int *const alone[] = { &mm_buffer_fd, &mm_watch_fd, &mm_birth_fd, &mm_report_fd, &mm_uffd };
    for (unsigned i = 0; i < sizeof alone / sizeof *alone; i++)
        if (fd == *alone[i])
            *alone[i] = (int)up;
    for (int i = 0; i < MM_SPARE; i++)
        if (fd == mm_spare(i))
            mm_spare_keep(i, (int)up);
    if (mm_area && fd == mm_area->folder)
        mm_area->folder = (int)up;
    for (int i = 0; i < READERS; i++)
        if (readers[i].slot && readers[i].fd == fd)
            readers[i].fd = (int)up;
    note_number((int)up);
    return 0;
}

static struct reader *reader_of(uint32_t slot)
{
    for (uint32_t i = 0; !none_open() && i < PROBES; i++) {
        struct reader *r = &readers[(slot + i) % READERS];
        if (__atomic_load_n(&r->slot, __ATOMIC_ACQUIRE) == slot)
            return r;
    }
    return NULL;
}

static int is_locked(uint32_t slot)
{
    if (LIKELY(!mm_any_locked))
        return 0;
    const struct reader *own = reader_of(slot);
    return (own && own->locked) || locked_before[mm_pif_at(mm_area, slot)->ino % READERS];
}

static struct reader *free_place(uint32_t slot)
{
    for (uint32_t i = 0; i < PROBES; i++)
        if (!readers[(slot + i) % READERS].slot)
            return &readers[(slot + i) % READERS];
    return NULL;
}

static int add_reader(uint32_t slot, int fd, int locked)
{
    struct reader *place = free_place(slot);
    if (!place)
        return 0;
    place->fd = fd, place->locked = locked, place->writes = (sys(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) == O_RDWR;
    note_number(fd);
    __atomic_store_n(&place->slot, slot, __ATOMIC_RELEASE);
    __atomic_add_fetch(&readers_count, 1, __ATOMIC_ACQ_REL);
    return 1;
}

/* The file of a descriptor by another one. */
static long open_again(int fd, int writes)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
    long flags = sys(SYS_fcntl, fd, F_GETFL);   /* one that only reads shall not open up a file for writing */
    if ((flags & (O_ACCMODE | O_APPEND | O_DIRECT)) == O_RDWR && sys(SYS_fcntl, fd, F_GETLEASE) == F_WRLCK)
        return -EAGAIN;                /* to open it would break the program's own lease, and wait for that */
    return writes && (flags & O_ACCMODE) == O_RDONLY ? mm_open_own(path, O_RDWR) : mm_open_shut(path, writes ? O_RDWR : O_RDONLY);
}

/* Of one that may be written the kernel executes nothing: so it only reads, but where the program's locks hang on it. */
static int open_reader(uint32_t slot, int fd, int writes)
{
    int locked = is_locked(slot);
    MM_ASSERT(mm_locked_by_me(&readers_lock));
    if (!free_place(slot))             /* to open it in vain is to close a descriptor of the file */
        return -EMFILE;
    long r = locked || writes ? open_again(fd, 1) : -EACCES;
    if (r < 0 && (r = open_again(fd, 0)) < 0)
        return (int)r;
    /* locked by now: the number stays, since to move it is to close a descriptor of the file */
    int own = locked ? (int)r : high((int)r);
    add_reader(slot, own, 0);
    return own;
}

/* A descriptor of the file that is ours alone, position included; the program's own where there can be none. */
static int own_reader(uint32_t slot, int fd, int writes)
{
    struct reader *found = reader_of(slot);
    if (found)
        return found->fd;
    mm_lock_own(&readers_lock, MM_LOCK_READERS);
    MM_STOP("readers.held");
    found = reader_of(slot);
    int r = found ? found->fd : open_reader(slot, fd, writes);
    mm_unlock_own(&readers_lock);
    if (r < 0) {
        long flags = sys(SYS_fcntl, fd, F_GETFL);
        if (flags >= 0 && (flags & (O_ACCMODE | O_APPEND | O_DIRECT)) == O_RDWR)
            return fd;
    }
    return r;
}

int mm_own_reader(uint32_t slot, int fd) { return own_reader(slot, fd, 0); }

int mm_home_reader(uint32_t slot, int fd)
{
    struct reader *found = reader_of(slot);
    if (found)
        return found->fd;
    long flags = UNLIKELY(mm_area->head->untracked) ? sys(SYS_fcntl, fd, F_GETFL)   /* they may have changed them */
                                                    : mm_fit_at(mm_area, mm_fds[fd].fit)->attributes;
    if (flags >= 0 && (flags & (O_ACCMODE | O_APPEND | O_DIRECT)) == O_RDWR)   /* pwrite appends with O_APPEND */
        return fd;
    return mm_own_reader(slot, fd);
}

/* One that may write, too.  Its number stays, by which another thread may be reading; where the program's locks hang on it, there is
 * one more. */
static int let_write(struct reader *own, uint32_t slot, int fd)
{
    mm_lock_own(&readers_lock, MM_LOCK_READERS);
    int home = own->fd, locked = is_locked(slot);
    long r = own->writes ? -EACCES : open_again(fd, 1);
    if (r >= 0 && locked)
        add_reader(slot, home = (int)r, 1);
    else if (r >= 0) {
        own->writes = sys(SYS_dup3, r, home, O_CLOEXEC) >= 0;
        mm_close_spare((int)r);
    }
    mm_unlock_own(&readers_lock);
    return home;
}

/* The same, to write by; the one at hand where that can. */
int mm_home_writer(uint32_t slot, int fd)
{
    int here = (sys(SYS_fcntl, fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_DIRECT)) == O_RDWR ? fd : mm_locked_reader(slot);
    int home = here >= 0 ? here : own_reader(slot, fd, 1);
    struct reader *own = reader_of(slot);
    return home >= 0 && own && own->fd == home && !own->writes ? let_write(own, slot, fd) : home;
}

static void count_locked(uint32_t place, int by)
{
    uint8_t times = __atomic_load_n(&locked_before[place], __ATOMIC_RELAXED);
    while (times != MANY && !__atomic_compare_exchange_n(&locked_before[place], &times, (uint8_t)(times + by), 0, __ATOMIC_ACQ_REL,
                                                         __ATOMIC_RELAXED))
        ;
}

/* The program is about to lock a tracked file: the reader that may be needed is opened while closing still harms nobody. */
void mm_locking(uint32_t slot, int fd)
{
    struct reader *own = reader_of(slot);
    if (own && own->locked)
        return;
    mm_any_locked = 1;
    mm_own_reader(slot, fd);
    if ((own = reader_of(slot)) != NULL && !own->writes)
        let_write(own, slot, fd);      /* later a number that the program would have could not be given back */
    if (own)
        own->locked = 1;
    else                               /* there can be none: one that is opened later shall stay */
        count_locked((uint32_t)(mm_pif_at(mm_area, slot)->ino % READERS), 1);
}

/* Or one that is only read so far, and that another may write to later.  What mm_not_locked takes if the lock is refused. */
uint32_t mm_locking_untracked(int fd)
{
    uint32_t place = (uint32_t)(mm_fit_at(mm_area, mm_fds[fd].fit)->ino % READERS);
    mm_any_locked = 1;
    count_locked(place, 1);
    return place;
}

void mm_not_locked(uint32_t place) { count_locked(place, -1); }

/* Our descriptor, which writes too, of a file that the program has locked, or -1.  There may be one that could only read. */
int mm_locked_reader(uint32_t slot)
{
    for (uint32_t i = 0; is_locked(slot) && i < PROBES; i++) {
        struct reader *r = &readers[(slot + i) % READERS];
        if (__atomic_load_n(&r->slot, __ATOMIC_ACQUIRE) == slot && (sys(SYS_fcntl, r->fd, F_GETFL) & O_ACCMODE) == O_RDWR)
            return r->fd;
    }
    return -1;
}

/* One that was opened by a name may be of another file, or read only. */
static int fits(uint32_t slot, int own)
{
    const struct mm_pif *p = mm_pif_at(mm_area, slot);
    struct stat st;
    return sys(SYS_fstat, own, &st) == 0 && st.st_dev == p->dev && st.st_ino == p->ino
        && (sys(SYS_fcntl, own, F_GETFL) & O_ACCMODE) == O_RDWR;
}

/* The program's own descriptor of a file that it has locked, or -1.  Not: this one, one with any of these flags. */
int mm_locked_by(uint32_t slot, int but, int flags)
{
    for (int fd = 0; is_locked(slot) && fd <= mm_top_fd; fd++)     /* those that knew of no PIF find it */
        if (fd != but && pif_of(fd) == slot && !(flags && sys(SYS_fcntl, fd, F_GETFL) & flags))
            return fd;
    return -1;
}

/* This one of ours is done with.  1: the program has locked the file, and has it open, so that to close it would drop the locks: it
 * is one more reader. */
int mm_keep_own(uint32_t slot, int own)
{
    if (mm_locked_by(slot, own, 0) < 0 || !fits(slot, own))      /* when the last of them is closed, so is this */
        return 0;
    mm_lock_own(&readers_lock, MM_LOCK_READERS);
    int here = add_reader(slot, own, 1);
    mm_unlock_own(&readers_lock);
    return here;
}

static void close_reader(uint32_t slot)
{
    MM_ASSERT(mm_locked_by_me(&readers_lock));
    for (struct reader *found; (found = reader_of(slot)) != NULL;) {
        mm_close_spare(found->fd);
        __atomic_store_n(&found->slot, 0, __ATOMIC_RELEASE);
        __atomic_sub_fetch(&readers_count, 1, __ATOMIC_ACQ_REL);
    }
}

/* With the last of the program's descriptors of the file: another thread may be reading through it until then. */
void mm_drop_reader(uint32_t slot)
{
    if (LIKELY(none_open()) || !reader_of(slot))
        return;
    for (int fd = 0; fd <= mm_top_fd; fd++)
        if (__atomic_load_n(&mm_fds[fd].fit, __ATOMIC_ACQUIRE)
            && __atomic_load_n(&mm_fds[fd].slot, __ATOMIC_RELAXED) == slot)
            return;
    mm_lock_own(&readers_lock, MM_LOCK_READERS);
    close_reader(slot);
    mm_unlock_own(&readers_lock);
}

/* While no call of the process is under way; the next that needs one opens another.  Not what a lock hangs on. */
void mm_give_up_reader(uint32_t slot)
{
    mm_lock_own(&readers_lock, MM_LOCK_READERS);
    if (!is_locked(slot))
        close_reader(slot);
    mm_unlock_own(&readers_lock);
}

static void closes_at_exec(int fd, int yes) { sys(SYS_fcntl, fd, F_SETFD, yes ? FD_CLOEXEC : 0); }

/* The kernel copies the table of descriptors before the memory: what another thread opened in between, the child's memory would
 * know and its table not have. */
void mm_readers_before_fork(void) { mm_lock(&readers_lock, MM_LOCK_READERS); }
void mm_readers_in_parent(void) { mm_unlock(&readers_lock); }

/* What tells of the child until it has a slot (area/processes.c): between the last two.  Not by high(), which is dear: the buffer's
 * number may be beyond the limit, this is below it. */
void mm_birth_begin_own(void)
{
    int fd = mm_birth_begin(mm_area), up = -1;
    for (long floor = 1000; fd >= 0 && up < 0 && floor >= 100; floor /= 2)
        up = (int)sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, floor);
    if (up >= 0)
        mm_close_spare(fd);
    mm_birth_fd = mm_note_own(up >= 0 ? up : fd);
}

void mm_birth_end_own(void)
{
    if (mm_birth_fd >= 0)
        mm_close_spare(mm_birth_fd);
    mm_birth_fd = -1;
}

/* Locks of the process are its parent's; what another thread was about to leave open for an exec is not for this one's. */
void mm_readers_after_fork(void)
{
    readers_lock = 0;
    for (int i = 0; mm_any_locked && i < READERS; i++)
        if (readers[i].slot) {
            closes_at_exec(readers[i].fd, 1);
            readers[i].locked = 0;
        }
    memset(locked_before, 0, sizeof locked_before);
    mm_any_locked = 0;
}

/* -- exec: it closes what says so, and with the first descriptor of a file that is closed the process's locks on it go ------- */

/* What stays open of ours, in a page of the run area: the new program finds it there.  The last one has no slot. */
struct held { int32_t fd; uint32_t slot; };
#define HELD ((int)((MM_BLOCK - sizeof locked_before) / sizeof(struct held)) - 1)

/* Has the program a descriptor of the file that the exec does not close?  Without one the locks go, as they should. */
static int goes_along(uint32_t slot)
{
    for (int fd = 0; fd <= mm_top_fd; fd++)
        if (mm_fds[fd].fit && mm_fds[fd].slot == slot && !(sys(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC))
            return 1;
    return 0;
}

/* What the next program finds out about them. */
static void note_held(uint32_t page)
{
    struct held *list = mm_page(mm_area, page);
    int n = 0;
    for (int fd = 0; fd <= mm_top_fd; fd++)
        pif_of(fd);                    /* before the lock: it takes others */
    mm_lock(&readers_lock, MM_LOCK_READERS);
    for (int i = 0; i < READERS && n < HELD; i++) {
        if (!readers[i].slot || !is_locked(readers[i].slot) || !goes_along(readers[i].slot))
            continue;
        list[n++] = (struct held){ readers[i].fd, readers[i].slot };
        closes_at_exec(readers[i].fd, 0);
    }
    list[n] = (struct held){ -1, 0 };
    memcpy(list + HELD + 1, locked_before, sizeof locked_before);
    mm_unlock(&readers_lock);
    mm_self->held = page;
}

/* Another program is about to take this one's place.  Where it is not tracked it has ours too: better than to lose the lock. */
void mm_readers_before_exec(void)
{
    if (LIKELY(!mm_any_locked))
        return;
    uint64_t mask = defer_handlers();
    uint32_t page = mm_page_take(mm_area);
    if (page)
        note_held(page);
    deliver_handlers(mask);
}

static uint32_t take_held(void) { return __atomic_exchange_n(&mm_self->held, 0, __ATOMIC_ACQ_REL); }

/* It is still this one. */
void mm_readers_exec_failed(void)
{
    uint32_t page = take_held();
    if (!page)
        return;
    uint64_t mask = defer_handlers();
    for (const struct held *h = mm_page(mm_area, page); h->slot; h++)
        closes_at_exec(h->fd, 1);
    mm_page_give(mm_area, page);
    deliver_handlers(mask);
}

/* In the new program. */
void mm_readers_after_exec(void)
{
    struct stat st;
    uint32_t page = take_held();
    if (!page)
        return;
    const struct held *h = mm_page(mm_area, page);
    memcpy(locked_before, h + HELD + 1, sizeof locked_before);
    for (mm_any_locked = 1; h->slot; h++) {
        const struct mm_pif *p = mm_pif_at(mm_area, h->slot);
        if (sys(SYS_fstat, h->fd, &st) < 0 || st.st_dev != p->dev || st.st_ino != p->ino || !add_reader(h->slot, h->fd, 1))
            continue;
        closes_at_exec(h->fd, 1);
    }
    mm_page_give(mm_area, page);
}
