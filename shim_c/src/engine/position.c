/* position.c - whose the position of a description is: the kernel's, until a file is redirected (docs/adr/0003). */
#include "engine/engine.h"

/* A call that moves the kernel's position of a tracked file: nobody takes the position over meanwhile (as the kernel
 * holds its own position lock, and likewise only where somebody else could come). */
int mm_position_begin(struct mm_fit *f)
{
    if (*mm_single_threaded && f->refs == 1)
        return 0;
    mm_holding++;
    mm_lock(&f->lock, MM_LOCK_POSITION);
    return 1;
}

void mm_position_end(struct mm_fit *f, int held)
{
    if (!held)
        return;
    mm_unlock(&f->lock);
    mm_holding--;
    mm_deliver_if_free();
}

/* From here on the FIT's position is the truth; the kernel's is brought up to date by mm_give_position. */
long mm_own_position(struct mm_fit *f, int fd)
{
    if (f->owned)
        return 0;
    int held = mm_position_begin(f);
    long r = f->owned ? 0 : sys_lseek(fd, 0, SEEK_CUR);
    if (r >= 0 && !f->owned) {
        f->position = r;
        f->owned = 1;
    }
    mm_position_end(f, held);
    return r < 0 ? r : 0;
}

/* Before the kernel uses the position itself. */
void mm_give_position_held(int fd)
{
    struct mm_fit *f = mm_fit_at(mm_area, mm_fds[fd].fit);
    MM_ASSERT(!f->slot || mm_locked_by_me(&mm_pif_at(mm_area, f->slot)->lock));
    if (!f->owned)
        return;
    int held = mm_position_begin(f);
    if (f->owned)
        sys_lseek(fd, f->position, SEEK_SET);
    f->owned = 0;
    mm_position_end(f, held);
}

/* The same; takes the file's lock.  Who writes at a position that is ours moves it under that lock, when the bytes are there:
 * given to the kernel meanwhile, it would not move, and what comes next would take the place of those bytes. */
void mm_give_position(int fd)
{
    if (!owned(fd))
        return;
    uint32_t slot = pif_of(fd);
    if (!slot) {
        mm_give_position_held(fd);
        return;
    }
    struct mm_pif *p = mm_pif_at(mm_area, slot);
    uint64_t mask = hold(p);
    mm_give_position_held(fd);
    release(p, mask);
}

/* While programs are about that are not tracked, the kernel's position is always the true one. */
void mm_show_position(struct mm_fit *f, int fd)
{
    if (UNLIKELY(mm_area->head->untracked) && f->owned)
        mm_give_position_held(fd);
}
