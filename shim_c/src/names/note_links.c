/* note_links.c - notes of names that have to survive a power cut, as names themselves (docs/adr/0016). */
#include "names/names.h"

#define NOTE_PART 165                  /* bytes of a note in one name */

/* A part of a note as a name in <store>/run/notes, of a file that is there for that: <journal byte>.<part>.<of>.<base64> */
static long note_part(uint64_t at, unsigned part, unsigned of, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    char name[300], base[32];
    uint32_t *number = &mm_area->head->note_base;
    int length = snprintf(name, sizeof name, "notes/%llx.%x.%x.", (unsigned long long)at, part, of);
    for (size_t i = 0; i < n; i += 3) {
        uint32_t word = (uint32_t)bytes[i] << 16 | (i + 1 < n ? bytes[i + 1] << 8 : 0) | (i + 2 < n ? bytes[i + 2] : 0);
        for (int k = 3; k >= 0; k--)
            name[length++] = digits[word >> 6 * k & 63];
    }
    name[length] = 0;
    for (int tries = 0;; tries++) {
        uint32_t seen = __atomic_load_n(number, __ATOMIC_ACQUIRE);
        snprintf(base, sizeof base, "notes/.%u", seen);
        long r = sys(SYS_linkat, mm_area->folder, base, mm_area->folder, name, 0);
        if ((r != -ENOENT && r != -EMLINK) || tries == 3)
            return r;
        if (r == -EMLINK)
            __atomic_compare_exchange_n(number, &seen, seen + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        snprintf(base, sizeof base, "notes/.%u", *number);
        long fd = mm_open_spare(mm_area->folder, base, O_WRONLY | O_CREAT, 0600);
        if (fd < 0)
            return fd;
        sys(SYS_fchmod, fd, 0600);     /* whatever the umask */
        mm_close_spare((int)fd);
    }
}

/* The store's filesystem, or 0.  It is asked for once: a folder stays on the filesystem that it is on. */
uint64_t mm_store_dev(void)
{
    struct statx st;
    uint64_t dev = __atomic_load_n(&mm_area->store_dev, __ATOMIC_RELAXED);
    if (!dev && sys_statx(mm_area->folder, "", AT_EMPTY_PATH, STATX_TYPE, &st) == 0) {
        dev = sys_dev(st.stx_dev_major, st.stx_dev_minor);
        __atomic_store_n(&mm_area->store_dev, dev, __ATOMIC_RELAXED);
    }
    return dev;
}

/* Is the path that a note speaks of on another filesystem than the store?  text: begins with the path. */
static int is_on_another(const struct mm_touch *record, const char *text)
{
    struct statx there;
    uint64_t store = mm_store_dev();
    if (!store)
        return 0;
    uint64_t dev = record->dev;
    if (!record->mode) {                           /* it is about to be made: in this folder */
        SCRATCH(folder);
        size_t n = record->path_length;
        while (n > 1 && text[n - 1] != '/')
            n--;
        memcpy(folder, text, n);
        folder[n] = 0;
        if (sys_statx(AT_FDCWD, folder, 0, STATX_TYPE, &there) < 0)
            return 0;
        dev = sys_dev(there.stx_dev_major, there.stx_dev_minor);
    }
    return dev != store;
}

static long make_notes_durable(void)
{
    long fd = mm_open_spare(mm_area->folder, "notes", O_RDONLY | O_DIRECTORY, 0), r = fd < 0 ? fd : sys(SYS_fsync, fd);
    if (fd >= 0)
        mm_close_spare((int)fd);
    return r;
}

/* 0: for want of room, of a descriptor or of memory it is not, and the call must not be made.  What else may fail is that the
 * store was removed: the run has said so, and there is nothing to note in. */
static int is_noted(long r)
{
    switch (r) {
    case -ENOSPC: case -EDQUOT: case -EIO: case -EROFS: case -EMFILE: case -ENFILE: case -ENOMEM:
        return 0;
    default:
        return 1;
    }
}

/* A note of something that no checkpoint knows has to be there after a power cut if what happens to that thing is.  Syncing
 * it would cost a millisecond for each file; but filesystems keep the order of names, so it becomes names itself.  Between
 * two filesystems there is no order: there it is synced. */
long mm_note_as_names(const struct mm_touch *record, const char *text, uint64_t at)
{
    const struct mm_header *h = mm_area->head;
    if (!(h->flags & MM_POWER) || mm_area->folder <= 0 || (!record->mode && !(h->flags & MM_ISOLATE)))
        return 0;
    uint32_t slot = record->mode ? mm_pif_find(mm_area, record->dev, record->ino, record->btime_ns) : 0;
    if (slot && (mm_pif_at(mm_area, slot)->flags & (MM_INDEXED | MM_LINKED)) == MM_INDEXED)
        return 0;                                  /* an index knows the file, and this name of it */
    size_t more = record->path_length + record->target_length + record->xattrs_length;
    size_t head = offsetof(struct mm_touch, previous), all = head + more;
    unsigned of = (unsigned)((all + NOTE_PART - 1) / NOTE_PART);
    long r = 0;
    for (unsigned part = 0; part < of && (r == 0 || r == -EEXIST); part++) {
        unsigned char piece[NOTE_PART];
        size_t start = (size_t)part * NOTE_PART, n = all - start < NOTE_PART ? all - start : NOTE_PART;
        for (size_t i = 0; i < n; i++)
            piece[i] = start + i < head ? ((const unsigned char *)record)[start + i]
                                        : (unsigned char)text[start + i - head];
        r = note_part(at, part, of, piece, n);
    }
    if ((r == 0 || r == -EEXIST) && is_on_another(record, text))
        r = make_notes_durable();
    return is_noted(r) ? 0 : r;
}
