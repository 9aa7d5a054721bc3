/* save.c - an image: the pages that changed, copied aside while every thread is parked and written out while they run again.
 *
 * A little, or little of much, is copied into the engine's region and written from there by a process that shares this memory;
 * the rest is left to a copy of the process, whose pages the kernel copies as they are written to.  Either is a child of our
 * parent and not of ours: the program has no more children than before.
 */
#include "memory/image_engine.h"

#include <linux/close_range.h>
#include <linux/kcmp.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define GIVE_UP_US 200000
#define WRITERS 0x80000000ul   /* __WCLONE: children that end without a signal */
#define FORK_PAYS 8     /* a fork copies the page tables of all memory: about as long as copying an eighth of it aside */

struct out { int fd; uint32_t crc; uint64_t written; long error; };

static void emit(struct out *out, const void *bytes, uint64_t n)
{
    const char *p = bytes;
    while (n && !out->error) {
        uint64_t piece = n < 1u << 20 ? n : 1u << 20;
        long r = sys(SYS_write, out->fd, p, piece);
        if (r == 0 || (r < 0 && r != -EINTR))
            out->error = r ? r : -EIO;
        if (r <= 0)
            continue;
        out->crc = own_crc(out->crc, p, r);
        p += r, n -= r;
        out->written += r;
    }
}

static const struct mm_vma *area_of(const struct mm_tables *t, uint64_t address, uint64_t *hint)
{
    while (t->area[*hint].end <= address)
        (*hint)++;
    return &t->area[*hint];
}

/* Pages that the program itself may not read are made readable for as long as it takes. */
static void readable(const struct mm_vma *v, const struct mm_span *s, int yes)
{
    if (!(v->protection & PROT_READ))
        sys(SYS_mprotect, s->start, s->end - s->start, yes ? v->protection | PROT_READ : v->protection);
}

static uint64_t tables_length(const struct mm_memory_image *image, uint64_t program)
{
    return 24 + sizeof *image + program + image->threads * sizeof(struct mm_thread) + image->timers * sizeof(struct mm_timer)
         + image->areas * sizeof(struct mm_vma) + (image->saved + image->existing) * sizeof(struct mm_span)
         + image->path_bytes;
}

static void put_tables(struct out *out, uint64_t pages)
{
    static const char zeros[MM_PAGE];
    struct mm_engine *e = ENGINE;
    struct mm_memory_image *image = &e->image;
    uint32_t words[2] = { MM_IMAGE_VERSION, 0x01020304 };
    uint64_t payload = image->data - 24 + pages;
    emit(out, MM_IMAGE_MAGIC, 8);
    emit(out, words, 8);
    emit(out, &payload, 8);
    emit(out, image, sizeof *image);
    emit(out, mm_as_it_was(&e->layout, __start_mm_program), image->program_bytes - sizeof e->layout);
    emit(out, &e->layout, sizeof e->layout);
    for (uint32_t i = 0; i <= e->asked; i++)
        if (e->thread[i].tid)
            emit(out, &e->thread[i], sizeof e->thread[i]);
    emit(out, e->timer, image->timers * sizeof e->timer[0]);
    emit(out, e->now.area, image->areas * sizeof e->now.area[0]);
    emit(out, e->saved, image->saved * sizeof e->saved[0]);
    emit(out, e->existing, image->existing * sizeof e->existing[0]);
    emit(out, e->now.path, image->path_bytes);
    emit(out, zeros, image->data - out->written);
}

static int from_stage;
static char *aside;                        /* where shared memory is copied to: the stage, or where that is too small a mapping of its own */
static uint64_t page_bytes, existing_bytes;

static const char *image_path(void)
{
    static LARGE char path[4096 + 128];
    const struct mm_tree *tree = &mm_memory_head->tree;
    char number[24] = { 0 }, *digits = own_decimal(number + 23, mm_self->number);
    uint64_t n = own_length(tree->images);
    own_copy(path, tree->images, n);
    own_copy(path + n, digits, own_length(digits));
    own_copy(path + n + own_length(digits), tree->suffix, own_length(tree->suffix) + 1);
    return path;
}

/* Until the programs run again: the processors are the pause's.  Not longer than whoever ends it lives. */
static void await_programs(void)
{
    struct mm_memory *m = mm_my_memory;
    while (!__atomic_load_n(&m->writes, __ATOMIC_ACQUIRE))
        if (sys_futex_wait(&m->writes, 0, GIVE_UP_US) == -ETIMEDOUT && mm_asker_ended(m->asker))
            break;
}

/* In a process of its own, which shares the program's descriptors until here: not for a moment does it hold any of them open
 * itself, whatever the program closes. */
static void write_out(void)
{
    struct mm_engine *e = ENGINE;
    struct mm_memory *m = mm_my_memory;
    struct out out = { .fd = -1 };
    uint64_t hint = 0;
    const char *path = image_path();
    sys(SYS_prctl, 15 /* PR_SET_NAME */, MM_WRITER_NAME);
    long own = sys(SYS_close_range, 0, ~0u, CLOSE_RANGE_UNSHARE);
    if (own < 0)                           /* a filter of the program's own may forbid it */
        own = sys(SYS_unshare, CLONE_FILES);
    __atomic_store_n(&m->writer_ready, 1, __ATOMIC_RELEASE);
    sys_futex_wake(&m->writer_ready, 1);
    await_programs();
    out.fd = own < 0 ? (int)own : (int)sys_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    uint64_t limit[2];
    if (sys(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, limit) == 0) {   /* the program's own files are what it is meant for */
        limit[0] = limit[1];
        sys(SYS_prlimit64, 0, RLIMIT_FSIZE, limit, 0);
    }
    if (out.fd < 0)
        out.error = out.fd;
    mm_handlers(&e->image);
    put_tables(&out, page_bytes);
    if (from_stage)
        emit(&out, e->stage, page_bytes);
    for (uint64_t i = 0, at = 0; !from_stage && i < e->image.saved; i++) {
        const struct mm_span *s = &e->saved[i];
        const struct mm_vma *v = area_of(&e->now, s->start, &hint);
        readable(v, s, 1);
        emit(&out, v->shared ? aside + at : (void *)s->start, s->end - s->start);
        at += v->shared ? s->end - s->start : 0;
    }
    uint32_t crc = out.crc;
    emit(&out, &crc, 4);
    if (!out.error && m->durable)
        out.error = sys(SYS_fdatasync, out.fd);
    if (out.error && out.fd >= 0)
        sys(SYS_unlink, path);
    if (from_stage && page_bytes > STAGE_KEPT)     /* this memory is the program's: not more of it than is worth it */
        sys(SYS_madvise, e->stage + STAGE_KEPT, STAGE - STAGE_KEPT, MADV_DONTNEED);
    m->crc = crc;
    m->file_bytes = out.written;
    m->write_error = (uint32_t)-out.error;
    __atomic_store_n(&m->written, out.error ? MM_MEMORY_WRITE_FAILED : MM_MEMORY_WRITTEN, __ATOMIC_RELEASE);
    sys_futex_wake(&m->written, 1 << 30);
    sys(SYS_exit_group, 0);
}

/* all: else of shared memory only, which a copy of the process would share as well */
static void stage(int all)
{
    struct mm_engine *e = ENGINE;
    char *to = aside;
    uint64_t hint = 0;
    for (uint64_t i = 0; i < e->image.saved; i++) {
        const struct mm_span *s = &e->saved[i];
        const struct mm_vma *v = area_of(&e->now, s->start, &hint);
        if (!all && !v->shared)
            continue;
        readable(v, s, 1);
        own_copy(to, (void *)s->start, s->end - s->start);
        readable(v, s, 0);
        to += s->end - s->start;
    }
}

static uint64_t shared_bytes(void)
{
    const struct mm_engine *e = ENGINE;
    uint64_t hint = 0, n = 0;
    for (const struct mm_span *s = e->saved; s < e->saved + e->image.saved; s++)
        n += area_of(&e->now, s->start, &hint)->shared ? s->end - s->start : 0;
    return n;
}

static int refuse_image(const char *why, const char *what)
{
    char *to = mm_my_memory->message, *end = to + sizeof mm_my_memory->message - 1;
    for (const char *part[] = { why, what[0] ? ": " : "", what }, **p = part; p < part + 3; p++)
        for (const char *c = *p; *c && to < end; c++)
            *to++ = *c;
    *to = 0;
    return -ENOTSUP;
}

static int has_own_folder(void)
{
    const struct mm_engine *e = ENGINE;
    for (uint32_t i = 1; i <= e->asked && __atomic_load_n(&mm_folders_apart, __ATOMIC_ACQUIRE); i++)
        if (e->thread[i].tid && sys(SYS_kcmp, sys_gettid(), e->signalled[i], KCMP_FS, 0, 0) != 0)
            return 1;
    return 0;
}

/* Everything that goes into the image; no page was copied yet. */
static int gather(void)
{
    struct mm_engine *e = ENGINE;
    struct mm_memory *m = mm_my_memory;
    struct mm_memory_image *image = &e->image;
    uint64_t segment;
    int r = m->maps_changed ? mm_maps_read(&e->now, 0) : e->maps_read;
    for (uint64_t i = 0; i < e->now.areas && r == 0; i++) {
        const char *why = mm_map_refused(&e->now, &e->now.area[i]);
        if (why)
            r = refuse_image(why, e->now.path + e->now.area[i].path);
    }
    if (r < 0)
        return r;
    if (__atomic_load_n(&mm_keys, __ATOMIC_ACQUIRE))
        return refuse_image("it has protection keys", "");
    if (__atomic_load_n(&mm_folders_told, __ATOMIC_ACQUIRE))
        return refuse_image("it is told of changes in folders (F_NOTIFY)", "");
    if (has_own_folder())
        return refuse_image("a thread has a working folder of its own (unshare)", "");
    if (sys(SYS_modify_ldt, 0, &segment, sizeof segment) > 0)
        return refuse_image("it has segments of memory of its own (modify_ldt)", "");
    if (e->tiles)
        return refuse_image("it computes in tiles of the processor (AMX)", "");
    int state = mm_process_state(image);
    if (state < 0)
        return refuse_image(state == -1 ? "more queued signals wait for it than can come back"
                            : state == -2 ? "it has more than 1024 timers, or one of another process's time"
                            : "a thread has a user, groups, capabilities, a filter of system calls or a network of its own", "");
    const char *why = mm_owners_note();
    if (why)
        return refuse_image(why, "");
    int complete = !m->base || m->base != e->last;
    e->last = 0;                           /* until this one is known to be written, nothing counts from it */
    r = mm_changes(&e->now, complete, &image->saved, &image->existing);
    if (r == -EFBIG)
        return refuse_image("it maps more than 256 MiB of deleted files, or of shared memory that was swapped out", "");
    if (r == -EAGAIN)
        return refuse_image("some of the memory that it shares was swapped out just now", "");
    if (r == -ENOMEM)
        return refuse_image("there is no room for a copy of the memory that it shares", "");
    if (r < 0)
        return r;
    if (mm_uffd < 0)
        complete = 1;
    image->index = m->index;
    image->base = complete ? 0 : m->base;
    image->areas = e->now.areas;
    image->path_bytes = e->now.path_bytes;
    image->program_bytes = (uint64_t)(__stop_mm_program - __start_mm_program) + sizeof e->layout;
    mm_layout_of(&e->layout);
    mm_build_of_library(image->library);
    image->pid = mm_known_number(mm_area, (uint32_t)sys_getpid());
    image->rseq_offset = &__rseq_size ? (uint64_t)__rseq_offset : 0;
    image->rseq_size = &__rseq_size ? __rseq_size : 0;
    image->tid_offset = e->thread[0].clear_tid - e->thread[0].fs;
    image->threads = 0;
    for (uint32_t i = 0; i <= e->asked; i++)
        image->threads += e->thread[i].tid != 0;
    image->data = (tables_length(image, image->program_bytes) + MM_PAGE - 1) & ~(MM_PAGE - 1);
    page_bytes = 0;
    for (uint64_t i = 0; i < image->saved; i++)
        page_bytes += e->saved[i].end - e->saved[i].start;
    existing_bytes = 0;
    for (uint64_t i = 0; i < image->existing; i++)
        existing_bytes += e->existing[i].end - e->existing[i].start;
    return 0;
}

static int start_writer(void)
{
    struct mm_engine *e = ENGINE;
    struct mm_memory *m = mm_my_memory;
    long pid;
    /* Beside the program under `metamori run`; elsewhere the parent would see a child that it never had.  There it is a child of
     * ours that ends without a signal: no wait of the program's sees it. */
    long whose = CLONE_FILES | ((uint32_t)sys(SYS_getppid) == mm_memory_head->supervisor ? CLONE_PARENT : 0);
    m->written = m->write_error = m->writer_ready = m->writes = 0;
    aside = e->stage;
    from_stage = page_bytes <= STAGE_KEPT || (page_bytes <= STAGE && page_bytes < existing_bytes / FORK_PAYS);
    if (from_stage) {
        stage(1);
        pid = mm_clone_process(CLONE_VM | CLONE_FS | whose, stack_top(e->writer_stack, sizeof e->writer_stack), write_out);
    } else {
        uint64_t shared = shared_bytes();
        if (shared > STAGE)
            aside = (char *)sys(SYS_mmap, 0, shared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if ((uint64_t)aside > -4096ul)
            return refuse_image("there is no room for a copy of the memory that it shares", "");
        if (shared > STAGE)
            sys(SYS_madvise, aside, shared, MADV_HUGEPAGE);
        stage(0);
        pid = mm_clone_whole(whose);
        if (pid == 0)
            write_out();
        if (shared > STAGE)
            sys(SYS_munmap, aside, shared);
    }
    if (pid < 0)
        return (int)pid;
    m->writer = (uint32_t)pid;
    e->writer = whose & CLONE_PARENT ? 0 : (uint32_t)pid;
    return 0;
}

/* The program's descriptors are its own again; while somebody shares them they would outlive it. */
static void await_writer(void)
{
    struct mm_memory *m = mm_my_memory;
    for (long waited = 0; !__atomic_load_n(&m->writer_ready, __ATOMIC_ACQUIRE) && waited < 10000; waited++)
        sys_futex_wait(&m->writer_ready, 0, 1000);
}

/* To whoever asked; 0: it has given up meanwhile. */
int mm_answer(uint32_t expected, uint32_t state)
{
    uint32_t *asked = &mm_my_memory->state;
    if (!__atomic_compare_exchange_n(asked, &expected, state, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return 0;
    sys_futex_wake(asked, 1 << 30);
    return 1;
}

/* Parked until whoever asked has its part of the instant; not longer than it lives. */
static void wait_while(uint32_t state)
{
    struct mm_memory *m = mm_my_memory;
    while (__atomic_load_n(&m->state, __ATOMIC_ACQUIRE) == state)
        if (sys_futex_wait(&m->state, state, GIVE_UP_US) == -ETIMEDOUT && mm_asker_ended(m->asker))
            break;
}

/* In a new process, also a fork's: nothing of the parent's record is about it. */
void mm_engine_in_child(uint32_t known, uint32_t real)
{
    struct mm_engine *e = ENGINE;
    e->pid = real;
    e->known_pid = known == real ? 0 : known;
    e->renamed_count = known != real;
    e->renamed[0] = (struct mm_renamed){ known, real, 0 };
    sys(SYS_arch_prctl, 0x1003, &e->renamed[0].fs);
    e->last = 0;
    e->writer = e->leader = e->within = 0;
    e->stop += e->stop & 1;
    if (mm_uffd >= 0)
        sys_close(mm_uffd);
    mm_uffd = -1;
}

/* All processes are parked. */
static void make_image(uint64_t begun)
{
    struct mm_engine *e = ENGINE;
    struct mm_memory *m = mm_my_memory;
    uint64_t stopped = own_now();
    int r = gather();
    uint64_t gathered = own_now();
    m->stop_ns = stopped - begun;
    m->gather_ns = gathered - stopped;
    r = r < 0 ? r : start_writer();
    m->copy_ns = own_now() - gathered;
    m->base = e->image.base;
    m->page_bytes = page_bytes;
    m->threads = (uint32_t)e->image.threads;
    m->known_pid = (uint32_t)e->image.pid;
    m->error = (uint32_t)-r;
    if (mm_answer(MM_MEMORY_GATHER, r < 0 ? MM_MEMORY_FAILED : MM_MEMORY_STOPPED) && r == 0) {
        e->last = m->index;                /* the asker names it as a base only once it is committed */
        wait_while(MM_MEMORY_STOPPED);
    }
    if (r == 0)
        await_writer();
}

/* For whoever looks at the process while all are parked: which descriptors are the library's, whether another program has taken its
 * place since its last image, and whether there are children to be looked for: whoever has none has no descendants either, of whom
 * one could become its child while it is parked. */
static void name_own(struct mm_memory *m)
{
    struct mm_engine *e = ENGINE;
    siginfo_t info;
    int own = 0;
    if (e->writer)                         /* nobody asks again before it has written, or was killed; of the first it only ends */
        sys(SYS_wait4, e->writer, 0, WRITERS | (__atomic_load_n(&m->written, __ATOMIC_ACQUIRE) ? 0 : WNOHANG), 0);
    e->writer = 0;
    m->same_program = m->base && m->base == e->last;
    m->childless = sys_getpid() != 1
        && sys(SYS_waitid, P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT | __WALL, 0) == -ECHILD;
    for (int fd = mm_next_own(0); fd >= 0 && own < 79; fd = mm_next_own(fd + 1))
        m->own[own++] = fd;
    m->own[own] = -1;
}

/* Of children that job control has stopped: has this process waited for that? */
static void look_at_children(void)
{
    for (uint32_t i = 1; i < mm_area->head->process_high && !mm_my_memory->childless; i++) {
        struct mm_memory *m = mm_memory_of(mm_area, i);
        siginfo_t info = { .si_pid = 0 };
        if (m && m->stands && sys(SYS_waitid, P_PID, m->pid, &info, WSTOPPED | WNOHANG | WNOWAIT, 0) == 0 && info.si_pid)
            m->unseen = 1;
    }
}

/* Signals that asked one that stood still: it has seen it by the state. */
static void forget_asked(void)
{
    struct timespec none = { 0, 0 };
    uint64_t bit = 1ul << (MM_MEMORY_SIGNAL - 1);
    while (sys(SYS_rt_sigtimedwait, &bit, 0, &none, 8) == MM_MEMORY_SIGNAL)
        ;
}

/* Every thread is parked, and an image was asked for: made if those of all other processes can be.  One that job control has
 * stopped waits here until it is continued; asked before that it makes the next one. */
void mm_make_images(uint64_t begun)
{
    struct mm_memory *m = mm_my_memory;
    do {
        name_own(m);
        m->maps_key = m->maps_changed = 0;
        ENGINE->maps_read = mm_maps_read(&ENGINE->now, &m->maps_key);
        if (ENGINE->maps_read == 0 && m->same_program)
            mm_claim_again(&ENGINE->now);
        if (ENGINE->again) {
            refuse_image("it is stopped in the middle of a call", "");
            m->error = ENOTSUP;
            mm_answer(MM_MEMORY_ASKED, MM_MEMORY_FAILED);
        } else if (mm_answer(MM_MEMORY_ASKED, MM_MEMORY_HELD)) {
            wait_while(MM_MEMORY_HELD);
            if (__atomic_load_n(&m->state, __ATOMIC_ACQUIRE) == MM_MEMORY_GATHER) {
                look_at_children();
                make_image(begun);
            }
        }
        if (!__atomic_load_n(&m->stands, __ATOMIC_ACQUIRE))
            return;
        m->pause_ns = own_now() - begun;
        __atomic_store_n(&m->stood, 1, __ATOMIC_RELEASE);
        sys_futex_wake(&m->stood, 1 << 30);
        while (__atomic_load_n(&m->stands, __ATOMIC_ACQUIRE) && __atomic_load_n(&m->state, __ATOMIC_ACQUIRE) != MM_MEMORY_ASKED)
            if (sys_futex_wait(&m->stands, 1, GIVE_UP_US) == -ETIMEDOUT && mm_asker_ended(m->asker))
                return;
        forget_asked();
        begun = own_now();
    } while (__atomic_load_n(&m->state, __ATOMIC_ACQUIRE) == MM_MEMORY_ASKED);
    ENGINE->again = 0;
}

void mm_save(void)
{
    struct mm_engine *e = ENGINE;
    struct mm_memory *m = mm_my_memory;
    uint64_t begun = own_now();
    m->message[0] = 0;
    if (e->pid != (uint32_t)sys_getpid())          /* a fork that nobody of ours saw */
        mm_engine_in_child((uint32_t)sys_getpid(), (uint32_t)sys_getpid());
    int r = mm_stop_others();
    /* The run is frozen, but somebody may stand between saying that a call begins and waiting for the end of the freeze:
     * brought back there, the call would go on uncounted. */
    e->again = r == 0 && (e->entering || __atomic_load_n(&mm_self->calls, __ATOMIC_SEQ_CST));
    if (r < 0) {
        if (r == -EAGAIN && mm_starts_threads())
            r = refuse_image("it has a timer that starts threads", "");
        m->error = (uint32_t)-r;
        mm_answer(MM_MEMORY_ASKED, MM_MEMORY_FAILED);
        return;
    }
    if (!e->again || m->stands)
        mm_make_images(begun);
    mm_release_others();
    m->pause_ns = own_now() - begun;
}
