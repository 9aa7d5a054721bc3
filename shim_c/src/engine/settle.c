/* settle.c - files whose bytes are in place, because the kernel itself reads or changes them there.
 *
 * Settled: every byte has been written back, once, for one call that only the kernel can do.
 * MM_HOME: somebody has it mapped, so what is written must appear in place.  Writes are the kernel's own, after the
 *   pre-images of the blocks were saved (once in an epoch: the PIF's table `saved` says where).  fresh_from as ever.
 * MM_MAPPED besides: its bytes may change without any call of ours, so all that an index needs of what is in place was saved
 *   when this began (fresh_from 0), and each checkpoint looks for what has changed since the last one
 *   (metamori/runtime/checkpoint/shared_mappings.py).
 * A checkpoint takes both flags away again when nobody maps the file any more.
 */
#include "engine/engine.h"

/* Buffered bytes to their places in the file, whose own bytes there are saved before.  The table says of them what it said. */
static long put_home(uint32_t slot, struct mm_pif *p, int home, uint64_t size)
{
    struct mm_range range[64];
    long r = mm_cache_write_back(mm_area, slot, mm_buffer_fd);
    for (uint64_t from = 0, n = 64; r == 0 && n == 64;) {
        for (n = 0; r == 0 && n < 64 && mm_table_next(mm_area, p, from, &range[n]); n++) {
            from = range[n].block + range[n].count;
            r = mm_save_blocks(slot, p, home, range[n].block * MM_BLOCK, from * MM_BLOCK);
        }
        if (r == 0)
            r = mm_ahead_sync();
        for (uint64_t i = 0; r == 0 && i < n; i++) {
            uint64_t at = range[i].block * MM_BLOCK, length = range[i].count * MM_BLOCK;
            if (at + length > size)
                length = at < size ? size - at : 0;
            r = mm_copy(mm_buffer_fd, range[i].buffer * MM_BLOCK, home, at, length);
        }
    }
    return r;
}

/* The kernel has taken these bits for what we wrote; the program has not written now.  Of root it takes none, and nobody else's
 * file is ours to give them.  Who changes mode or owner by a name holds p->lock for that (wrap_attributes.c). */
static void set_id_again(int home, const struct stat *before)
{
    struct stat now;
    mode_t bits = before->st_mode & (S_ISUID | S_ISGID);
    if (UNLIKELY(bits) && sys(SYS_geteuid) != 0 && sys(SYS_fstat, home, &now) == 0
        && now.st_uid == before->st_uid && now.st_gid == before->st_gid
        && (now.st_mode | bits) == before->st_mode && now.st_mode != before->st_mode)
        sys(SYS_fchmod, home, before->st_mode & 07777);
}

/* Writes all bytes back.  whole: the kernel is about to change any of them, so all that an index needs is saved. */
static long bring_home(uint32_t slot, struct mm_pif *p, int fd, int whole)
{
    struct stat st = { .st_size = 0 };  /* filled wherever r is 0 */
    int home = mm_home_writer(slot, fd), isolated = ISOLATED(p), moved = !is_native(p);
    long size = mm_size_held(slot, p, home), r = home < 0 ? home : size < 0 ? size : sys(SYS_fstat, home, &st);
    if (r == 0 && mm_is_longer(p, size))
        r = mm_take_tail(slot, p, home, size);
    if (r == 0 && (whole || isolated))
        r = mm_save_blocks(slot, p, home, 0, MM_NO_LIMIT);
    if (r == 0 && (p->flags & MM_VIRTUAL) && p->home_limit < (uint64_t)st.st_size) {
        r = mm_save_blocks(slot, p, home, p->home_limit, MM_NO_LIMIT);
        if (r == 0)
            r = mm_ahead_sync();
        if (r == 0)
            r = sys(SYS_ftruncate, home, p->home_limit);
    }
    if (r == 0)
        r = put_home(slot, p, home, size);
    if (r == 0 && (p->flags & MM_VIRTUAL))
        r = sys(SYS_ftruncate, home, size);
    if (r == 0 && (whole || isolated)) /* the kernel changes it next */
        r = mm_ahead_sync();
    if (r == 0 && moved)
        r = mm_ahead_home(slot, home);
    MM_STOP("home.moved");
    if (moved)
        set_id_again(home, &st);
    if (r < 0)
        return r;
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st.st_mtim };
    int later = p->mtime_ns && p->mtime_ns > sys_time_ns(st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    if (later)
        times[1] = (struct timespec){ p->mtime_ns / 1000000000u, p->mtime_ns % 1000000000u };
    MM_STOP("home.times");
    if (moved || later)                /* the program has not written now */
        sys(SYS_utimensat, home, NULL, times, 0);
    p->ahead_block = 0;
    /* who reads without the lock looks for an entry first, and where it finds none at the limit: in this order it finds the
       bytes in the buffer, or in place, where they are by now */
    MM_STOP("home.copied");
    __atomic_store_n(&p->home_limit, MM_NO_LIMIT, __ATOMIC_RELEASE);
    MM_STOP("home.shown");
    mm_table_empty(mm_area, p);
    MM_STOP("home.cleared");
    mm_cache_drop(mm_area, slot);
    __atomic_add_fetch(&mm_area->head->virtual_count, 1, __ATOMIC_RELEASE);    /* before: whoever has asked the kernel asks again */
    __atomic_and_fetch(&p->flags, ~MM_VIRTUAL, __ATOMIC_ACQ_REL);
    if (isolated)
        __atomic_or_fetch(&p->flags, MM_SETTLED, __ATOMIC_ACQ_REL);
    if (whole || isolated)
        p->fresh_from = 0;
    p->cut = 0;                        /* from now on its bytes are in place, and none of the buffer's */
    return 0;
}

/* Write the file's bytes back for a call that only the kernel can do: what an index needs of what is in place is saved first.
 * Afterwards the file is native until the next checkpoint. */
long mm_settle(uint32_t slot, int fd)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    uint64_t mask = hold(p);
    touched(slot, p);
    long r = bring_home(slot, p, fd, 1);
    release(p, mask);
    return r;
}

/* Is nothing of it anywhere else, though what is written next would be? */
static int is_in_place(const struct mm_pif *p, int fd)
{
    struct stat st;
    return !p->root && sys(SYS_fstat, fd, &st) == 0 && p->size == (uint64_t)st.st_size && p->home_limit >= p->size;
}

/* The same for a file that is about to be executed, of which fd need not be fit to write.  The kernel runs nothing that is open
 * for writing: it is so under the lock only, and whoever waited for that finds the bytes in place and opens nothing. */
long mm_settle_program(uint32_t slot, int fd)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    int own = mm_locked_reader(slot);
    uint64_t mask = hold(p);
    long r = 0, home = -1;
    if (!is_native(p)) {
        char path[40];
        snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
        home = own >= 0 ? own : mm_open_shut(path, O_RDWR);
        touched(slot, p);
        r = home >= 0 ? bring_home(slot, p, (int)home, 1) : is_in_place(p, fd) ? 0 : home;     /* it runs already, say */
        if (own < 0 && home >= 0 && LIKELY(!mm_any_locked)) {
            mm_drop_reader(slot);
            mm_close_spare((int)home);
            home = -1;
        }
    }
    release(p, mask);
    if (UNLIKELY(own < 0 && home >= 0) && !mm_keep_own(slot, (int)home))       /* of a file that the program has locked */
        mm_close_spare((int)home);
    return r;
}

/* The file's bytes are written back and stay there. how: 0, or MM_UNSEEN.  flags: of the PIF, besides. */
long mm_stay_home(uint32_t slot, int fd, int how, uint32_t flags)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    uint32_t wanted = flags | MM_HOME | (how == MM_UNSEEN ? MM_MAPPED : 0);
    if (how == MM_UNSEEN)
        mm_unseen_in(p);
    if ((__atomic_load_n(&p->flags, __ATOMIC_ACQUIRE) & wanted) == wanted) {
        if (how == MM_UNSEEN)
            touched(slot, p);
        return 0;
    }
    uint64_t mask = hold(p);
    long r = 0;
    if (how == MM_UNSEEN)
        touched(slot, p);
    if (!is_native(p) || ISOLATED(p) || (how == MM_UNSEEN && p->fresh_from != 0)) {
        touched(slot, p);
        r = bring_home(slot, p, fd, how == MM_UNSEEN);
    }
    if (r == 0) {
        if (how == MM_UNSEEN)
            mm_pif_mapped(mm_area, slot);
        __atomic_fetch_or(&p->flags, flags | MM_HOME, __ATOMIC_RELEASE);
    }
    release(p, mask);
    return r;
}

/* Blocks that a call changes in a file whose mappings are watched.  The number that stands for "in this epoch" may not
 * be one that stands for it later. */
static long note_blocks(struct mm_pif *p, uint64_t start, uint64_t end)
{
    long r = 0;
    for (uint64_t block = start / MM_BLOCK; block * MM_BLOCK < end && r == 0; block++)
        if (!mm_saved(mm_area, p, block))
            r = mm_saved_set(mm_area, p, block, mm_area->head->epoch_block, 1);
    return r;
}

/* Pre-images, durable.  A sync costs as much as a megabyte, so as much around the place is saved with it, once. */
static long save_ahead(uint32_t slot, struct mm_pif *p, int fd, uint64_t start, uint64_t end)
{
    const uint64_t around = mm_area->head->flags & MM_POWER ? 1 << 20 : MM_BLOCK;
    long r = mm_save_around(slot, p, fd, start, end, around, 0);
    return r < 0 ? r : mm_ahead_sync();
}

/* At the kernel's position (at < 0) it is held, so that what is saved is what is written over. */
static long write_saved(uint32_t slot, int fd, const struct iovec *v, int n, off_t at, int append)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    size_t asked = mm_asked_for(v, n), may = asked, done = 0;
    long size = append || p->fresh_from ? mm_size_held(slot, p, fd) : 0;
    long from = append ? size : at >= 0 ? at : sys_lseek(fd, 0, SEEK_CUR);
    long r = size < 0 ? size : from < 0 ? from : p->flags & MM_MAPPED ? note_blocks(p, from, from + asked)
           : save_ahead(slot, p, fd, from, from + asked);
    MM_STOP("home.saved");
    if (r >= 0 && asked)
        r = mm_within_limit(from, &may);   /* the kernel's own is lifted */
    if (r < 0)
        return r;
    int flags = append ? RWF_APPEND : open_flags(fd) & O_APPEND ? RWF_NOAPPEND : 0;
    if (LIKELY(may == asked))
        return sys(SYS_pwritev2, fd, v, n, at < 0 ? -1 : at, 0, flags);
    for (int i = 0; i < n && done < may; i++) {
        struct iovec piece = { v[i].iov_base, v[i].iov_len < may - done ? v[i].iov_len : may - done };
        r = sys(SYS_pwritev2, fd, &piece, 1, at < 0 ? -1 : at + (off_t)done, 0, flags);
        if (r <= 0)
            break;
        done += r;
    }
    return done ? (long)done : r;
}

/* A write that has to appear in place: the kernel's own, after the pre-images. */
long mm_write_home(uint32_t slot, int fd, const struct iovec *v, int n, off_t at, int append)
{
    MM_ASSERT(mm_locked_by_me(&mm_pif_at(mm_area, slot)->lock));
    MM_ALWAYS(is_native(mm_pif_at(mm_area, slot)));    /* with MM_HOME every byte is in place */
    mm_give_position_held(fd);
    struct mm_fit *f = mm_fit_at(mm_area, mm_fds[fd].fit);
    int held = at < 0 ? mm_position_begin(f) : 0;
    long r = write_saved(slot, fd, v, n, at, append);
    mm_position_end(f, held);
    return r;
}

/* mm_stay_home for a file of which nobody's descriptor is at hand. */
void mm_home_by_name(uint32_t slot, const char *path, int how, uint32_t flags)
{
    static int said;
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    struct stat st;
    int own = mm_locked_reader(slot);  /* to close another descriptor of it would drop the program's locks */
    long fd = own >= 0 ? own : mm_open_shut_way(path, O_RDWR | O_NOFOLLOW), r = fd;
    if (own >= 0 || (fd >= 0 && sys(SYS_fstat, fd, &st) == 0 && st.st_dev == p->dev && st.st_ino == p->ino))
        r = mm_stay_home(slot, (int)fd, how, flags);
    if (own < 0 && fd >= 0 && !mm_keep_own(slot, (int)fd))
        mm_close_spare((int)fd);
    if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -ELOOP && !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
        mm_say("what is written to %s does not appear under its other names, or to untracked processes (%s)",
               path, strerror((int)-r));
}

/* A file that is about to leave the scope: every byte is in place, and what an index needs of it is saved, for good.  From now on
 * nothing is redirected, and nobody asks what becomes of it.  open_flags: O_NOFOLLOW, or 0.  0 or -errno. */
long mm_settle_for_good(uint32_t slot, const char *path, int open_flags)
{
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    int own = mm_locked_reader(slot);
    long fd = own >= 0 ? own : mm_open_shut_way(path, O_RDWR | open_flags), r = 0;
    /* one that reads is enough, where there is nothing to be written back; of a locked file not ours, which would not stay */
    if (fd < 0 && (own = mm_locked_by(slot, -1, O_WRONLY | O_APPEND | O_DIRECT)) >= 0)
        fd = own;
    if (fd < 0)
        fd = mm_open_shut_way(path, O_RDONLY | open_flags);
    uint64_t mask = hold(p);
    touched(slot, p);
    if (!is_native(p) || p->fresh_from != 0 || p->home_limit != MM_NO_LIMIT)
        r = fd < 0 ? fd : bring_home(slot, p, (int)fd, 1);
    if (r == 0) {
        p->mtime_ns = 0;
        __atomic_fetch_or(&p->flags, MM_HOME | MM_ENGINE, __ATOMIC_RELEASE);
    }
    release(p, mask);
    if (own < 0 && fd >= 0) {
        mm_drop_reader(slot);
        if (!mm_keep_own(slot, (int)fd))
            mm_close_spare((int)fd);
    }
    return r;
}
