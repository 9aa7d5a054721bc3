/* context.c - what every part of the library knows of the process that it is in: its run, its slot, its descriptors. */
#include "area/area.h"

struct mm_area *mm_area;
int mm_active;
struct mm_process *mm_self;
uint32_t mm_self_process;
int mm_buffer_fd = -1;
int mm_watch_fd = -1;
int mm_uffd = -1;
static const char unknown;
const char *mm_single_threaded = &unknown;
int mm_ready;                          /* 1: settled; 2: preloaded by hand, the run begins at the first need */
uint32_t mm_streams_lock, mm_noted_lock, mm_table_lock;
__thread uint32_t mm_known_tid __attribute__((tls_model("initial-exec")));

__attribute__((weak)) struct mm_life mm_life;      /* init.c has the one that counts */
void mm_begin(void) { mm_life.begin(); }
int mm_begin_late(void) { return mm_life.begin_late(); }
void mm_in_child(void) { mm_life.in_child(); }
void mm_last_out(void) { mm_life.last_out(); }
void mm_run_over(void) { mm_life.over(); }

void (*mm_on_tracked)(int fd);
int (*mm_make_room)(void);

LARGE struct mm_descriptor mm_fds[MM_FDS];
int mm_top_fd = -1;

/* A process in our memory with descriptors of its own (clone with CLONE_VM): what it opens and closes is not ours. */
int mm_memory_shared;
int mm_stranger(void) { return UNLIKELY(mm_memory_shared) && (uint32_t)sys_getpid() != mm_self->pid; }

/* Process and thread numbers of another PID namespace mean other processes in the run area. */
int mm_same_namespace(struct mm_area *area)
{
    struct stat st;
    return !area->head->pid_namespace || sys(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &st, 0) < 0
        || st.st_ino == area->head->pid_namespace;
}

struct mm_header *mm_memory_head;

/* Does `metamori run` serve this process's calls?  Then no runtime is loaded into it: there would be no way to bring one back. */
int mm_memory_run(void)
{
    return mm_memory_head && mm_memory_head->supervisor
        && mm_start_time(mm_memory_head->supervisor) == mm_memory_head->supervisor_start;
}

/* The FIT of a descriptor whose number means the same file as a moment ago, or 0. */
uint32_t mm_stable(int fd)
{
    while (UNLIKELY(__atomic_load_n(&mm_fds[fd].generation, __ATOMIC_ACQUIRE) == MM_CHANGING))
        sys_pause_us(50);
    return __atomic_load_n(&mm_fds[fd].fit, __ATOMIC_ACQUIRE);
}

int mm_table_begin(void)
{
    mm_holding++;
    uint32_t holder = __atomic_load_n(&mm_table_lock, __ATOMIC_RELAXED) & 0x7fffffff;
    if (holder && holder == mm_tid)    /* in fork, or in a handler that interrupted this */
        return 0;
    mm_lock(&mm_table_lock, MM_LOCK_TABLE);
    return 1;
}

void mm_table_end(int locked_here)
{
    if (locked_here)
        mm_unlock(&mm_table_lock);
    mm_holding--;
    mm_deliver_if_free();
}

/* The PIF of what a descriptor leads to, noted for it and for the description.  0: it leads to something else by now. */
static int look_again(int fd, uint32_t *slot, int *appeared)
{
    struct mm_descriptor *d = &mm_fds[fd];
    uint32_t fit = __atomic_load_n(&d->fit, __ATOMIC_ACQUIRE);
    if (!fit)
        return 1;
    struct mm_fit *f = mm_fit_at(mm_area, fit);
    uint32_t generation = __atomic_load_n(&mm_area->head->pif_generation, __ATOMIC_ACQUIRE), found = 0, known = 0;
    uint64_t dev = f->dev, ino = f->ino;
    if (!__atomic_load_n(&f->slot, __ATOMIC_ACQUIRE) && (found = mm_pif_find(mm_area, dev, ino, 0))
        && !mm_pif_ref(mm_area, found, dev, ino))
        found = 0;
    MM_STOP("again.found");
    int mine = mm_table_begin();       /* who closes it lets the description go under this lock */
    uint32_t looked = __atomic_load_n(&d->generation, __ATOMIC_RELAXED);
    int same = looked != MM_CHANGING && d->fit == fit && f->dev == dev && f->ino == ino;
    if (same) {
        /* one description counts once, whichever of its threads and processes comes first */
        if (!found)
            known = __atomic_load_n(&f->slot, __ATOMIC_ACQUIRE);
        else if (__atomic_compare_exchange_n(&f->slot, &known, found, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            known = found, found = 0;
        *slot = known;
        *appeared = !__atomic_load_n(&d->slot, __ATOMIC_RELAXED) && known;
        /* pif_of reads them in the other order: who sees the generation sees its slot */
        __atomic_store_n(&d->slot, known, __ATOMIC_RELAXED);
        __atomic_compare_exchange_n(&d->generation, &looked, generation, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);   /* not MM_CHANGING */
    }
    mm_table_end(mine);
    if (found && __atomic_sub_fetch(&mm_pif_at(mm_area, found)->refs, 1, __ATOMIC_ACQ_REL) == 0)
        mm_pif_drop(mm_area, found);
    return same;
}

/* The PIF of a descriptor after PIFs have appeared: a reader's file may be written by now. */
uint32_t mm_pif_again(int fd)
{
    uint32_t slot = 0;
    int appeared = 0;
    mm_holding++;                      /* a handler might want what is locked here, or close it */
    while (mm_stable(fd) && !look_again(fd, &slot, &appeared)) {
    }
    mm_holding--;
    mm_deliver_if_free();
    if (UNLIKELY(mm_on_tracked != NULL) && appeared)
        mm_on_tracked(fd);
    return slot;
}
