/* processes.c - the processes of a run in its area: who lives, and which descriptor of each is which open description.
 *
 * Invariants: a slot is filled before it is published (pid); a dead process is recognised by pid and start time, so a pid
 * that came round is not mistaken for it.
 */
#define _GNU_SOURCE
#include "area/area_internal.h"

#include <stdlib.h>
#include <string.h>

struct mm_process *mm_proc(struct mm_area *a, uint32_t process)
{
    return mm_region(a, PROCESSES, (uint64_t)process * sizeof(struct mm_process));
}
/* Whether the process that took this slot lives.  The only place where that is asked, mapped or read from the file.  One that
 * could not read its own start time (no /proc, no memory) counts as long as anybody has its number. */
int mm_process_lives(const struct mm_process *p)
{
    uint32_t pid = __atomic_load_n(&p->pid, __ATOMIC_ACQUIRE);
    if (!pid)
        return 0;
    return p->start_time ? mm_is_still(pid, p->start_time) : sys(SYS_kill, pid, 0) != -ESRCH;
}
int mm_process_alive(struct mm_area *a, uint32_t process) { return mm_process_lives(mm_proc(a, process)); }

/* A forked child without a slot belongs to the run from the instant on at which it exists, whoever is killed and whenever
 * it first runs: before the fork its parent locks an open description of the header, which the child then has as well.
 * The child lets the lock go when it has its slot; the kernel does when it was killed before. */
static long birth_lock(int header, int call, short type)
{
    struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_len = 1 };
    long r = sys(SYS_fcntl, header, call, &lock);
    return r < 0 ? r : call == F_OFD_GETLK && lock.l_type != F_UNLCK;
}

int mm_unborn_of(int header) { return birth_lock(header, F_OFD_GETLK, F_WRLCK) > 0; }

/* Is there any?  Asked before the slots are looked at: who has let the lock go has one. */
int mm_unborn(struct mm_area *a)
{
    uint32_t *calls = mm_as_a_call;    /* as in mm_start_time */
    if (calls)
        __atomic_add_fetch(calls, 1, __ATOMIC_SEQ_CST);
    int header = mm_header_open(a), any = header >= 0 && mm_unborn_of(header);
    if (header >= 0)
        mm_close_spare(header);
    if (calls)
        __atomic_sub_fetch(calls, 1, __ATOMIC_SEQ_CST);
    return any;
}

/* The lock, as a descriptor; -1: there is none to be had. */
int mm_birth_begin(struct mm_area *a)
{
    int header = mm_header_open(a);
    if (header >= 0 && birth_lock(header, F_OFD_SETLK, F_RDLCK) < 0) {
        mm_close_spare(header);
        return -1;
    }
    return header;
}

void mm_child_joined(int header) { birth_lock(header, F_OFD_SETLK, F_UNLCK); }

uint32_t mm_process_of(struct mm_area *a, uint32_t pid)
{
    for (uint32_t i = 1; i < a->head->process_high; i++)
        if (mm_proc(a, i)->pid == pid)
            return i;
    return 0;
}

/* executing: it is a program that has been started, and has not said so yet.  One that has a slot keeps it. */
uint32_t mm_process_join(struct mm_area *a, uint32_t pid, uint64_t start_time, uint32_t executing)
{
    struct mm_header *h = a->head;
    uint32_t process = 0;
    mm_lock(&h->lock, MM_LOCK_AREA);
    for (uint32_t i = 1; i < h->process_high; i++) {
        const struct mm_process *p = mm_proc(a, i);
        if (p->pid == pid && start_time && p->start_time == start_time) {
            mm_unlock(&h->lock);
            return i;
        }
        if (!p->pid && !process)
            process = i;
    }
    if (!process && mm_reserve(a, PROCESSES, ((uint64_t)h->process_high + 1) * sizeof(struct mm_process)) == 0)
        process = h->process_high++;
    if (process) {
        struct mm_process *p = mm_proc(a, process);
        p->calls = 0;
        p->fd_root = p->held = 0;
        p->outside = p->leaving = 0;
        p->executing = executing;
        p->unfollowed = 2;
        p->start_time = start_time;
        p->number = h->next_process++;
        if (h->flags & MM_MEMORY && !p->memory && mm_reserve(a, PAGES, ((uint64_t)h->next_page + 1) * MM_BLOCK) == 0)
            p->memory = h->next_page++;
        p->epoch = h->epoch;
        __atomic_store_n(&p->pid, pid, __ATOMIC_SEQ_CST);
    }
    mm_unlock(&h->lock);
    return process;
}

/* The page that *at names; made when it names none, by whichever thread comes first. */
static uint32_t *page_at(struct mm_area *a, uint32_t *at, int make)
{
    uint32_t page = __atomic_load_n(at, __ATOMIC_ACQUIRE), none = 0;
    if (!page && make && (page = mm_page_take(a))
        && !__atomic_compare_exchange_n(at, &none, page, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        mm_page_give(a, page);
        page = none;
    }
    return page ? mm_page(a, page) : NULL;
}

static uint32_t *fd_entry(struct mm_area *a, uint32_t process, int fd, int make)
{
    if (fd < 0 || fd >= 1 << 20)
        return NULL;
    uint32_t *root = page_at(a, &mm_proc(a, process)->fd_root, make);
    uint32_t *page = root ? page_at(a, &root[fd >> 10], make) : NULL;
    return page ? page + (fd & 1023) : NULL;
}

/* The descriptors of a process and their FITs; returns their number: more than room, only the first room are there. */
long mm_fd_list(struct mm_area *a, uint32_t process, int32_t *fds, uint32_t *fits, long room)
{
    struct mm_process *p = mm_proc(a, process);
    long n = 0;
    if (!p->fd_root)
        return 0;
    uint32_t *root = mm_page(a, p->fd_root);
    for (int i = 0; i < 1024; i++) {
        if (!root[i])
            continue;
        uint32_t *page = mm_page(a, root[i]);
        for (int j = 0; j < 1024; j++) {
            uint32_t fit = __atomic_load_n(&page[j], __ATOMIC_ACQUIRE);
            if (fit && n++ < room)
                fds[n - 1] = i * 1024 + j, fits[n - 1] = fit;
        }
    }
    return n;
}

int mm_fd_set(struct mm_area *a, uint32_t process, int fd, uint32_t fit)
{
    uint32_t *entry = fd_entry(a, process, fd, fit != 0);
    if (!entry)
        return fit ? -ENOSPC : 0;
    __atomic_store_n(entry, fit, __ATOMIC_RELEASE);
    return 0;
}

static void remove_dead(struct mm_area *a, struct mm_process *p)
{
    if (p->fd_root) {
        uint32_t *root = mm_page(a, p->fd_root);
        for (int i = 0; i < 1024; i++) {
            if (!root[i])
                continue;
            uint32_t map = root[i], *fits = mm_page(a, map);
            for (int j = 0; j < 1024; j++) {
                uint32_t fit = __atomic_exchange_n(&fits[j], 0, __ATOMIC_ACQ_REL);   /* killed in here, none is given back twice */
                if (fit)
                    mm_fit_unref(a, fit);
            }
            __atomic_store_n(&root[i], 0, __ATOMIC_RELEASE);
            mm_page_give(a, map);
        }
        uint32_t page = p->fd_root;
        p->fd_root = 0;
        mm_page_give(a, page);
    }
    uint32_t held = __atomic_exchange_n(&p->held, 0, __ATOMIC_ACQ_REL);
    if (held)
        mm_page_give(a, held);
    mm_room_of_dead(a, p);
    __atomic_store_n(&p->calls, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&p->pid, 0, __ATOMIC_RELEASE);
}

/* Its slot is free, unless another has freed it meanwhile: then it may be somebody else's. */
static void leave_as(struct mm_area *a, uint32_t process, uint32_t pid, uint64_t start_time)
{
    struct mm_process *p = mm_proc(a, process);
    mm_lock(&p->leave_lock, MM_LOCK_LEAVE);
    if (p->pid == pid && p->start_time == start_time)
        remove_dead(a, p);
    mm_unlock(&p->leave_lock);
}

/* Each program that begins looks at four slots, the next at the next ones: a run of many short processes has not many.  Only what
 * nobody has the number of is dead here: /proc may be hidden from us. */
void mm_release_some_dead(struct mm_area *a, uint32_t pid)
{
    uint32_t slots = a->head->process_high - 1;
    for (uint32_t i = 0; i < 4 && i < slots; i++) {
        uint32_t process = 1 + (4 * pid + i) % slots;
        const struct mm_process *p = mm_proc(a, process);
        uint32_t its = __atomic_load_n(&p->pid, __ATOMIC_ACQUIRE);
        uint64_t start = p->start_time;
        if (its && sys(SYS_tkill, its, 0) == -ESRCH)
            leave_as(a, process, its, start);
    }
}

void mm_process_leave(struct mm_area *a, uint32_t process)
{
    leave_as(a, process, mm_proc(a, process)->pid, mm_proc(a, process)->start_time);
}

/* Free what processes that were killed left behind. */
void mm_release_dead(struct mm_area *a)
{
    for (uint32_t i = 1; i < a->head->process_high; i++) {
        const struct mm_process *p = mm_proc(a, i);
        uint32_t pid = __atomic_load_n(&p->pid, __ATOMIC_ACQUIRE);
        uint64_t start_time = p->start_time;
        if (pid && !mm_process_lives(p))
            leave_as(a, i, pid, start_time);
    }
}

/* What a thread of this number held: the caller's own. */
void mm_release_locks(struct mm_area *a, uint32_t tid)
{
    mm_release_if(&a->head->lock, tid);
    mm_release_if(&a->head->session_lock, tid);
    mm_release_if(&a->head->ahead_lock, tid);
    mm_release_if(&a->head->order_lock, tid);
    mm_release_if(&a->head->shut_ways_lock, tid);
    for (int i = 0; i < MM_NAME_LOCKS; i++)
        mm_release_if(&a->head->name_lock[i], tid);
    for (uint32_t slot = 1; slot < a->head->pif_count; slot++) {
        struct mm_pif *p = mm_pif_at(a, slot);
        if ((__atomic_load_n(&p->lock, __ATOMIC_ACQUIRE) & MM_OWNER) == tid)
            p->broken_off = 1;
        mm_release_if(&p->lock, tid);
        mm_release_if(&p->names_lock, tid);
    }
}
