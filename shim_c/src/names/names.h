/* names/names.h - paths, and what has to be kept before a name changes.
 *
 * Unlocked.  What looks at paths only (mm_canonical, mm_tracked, mm_below ...) may be called anywhere; what notes or keeps, in a
 * call; what is about one name that goes or comes, named, so that nobody puts something else there meanwhile:
 *
 *   mm_hold_names                 in a call; until mm_let_names_go
 *     mm_touch(path)              the path is noted as it is, once in an interval
 *     mm_keep(path, ..., &doomed) named: what an index needs of the file goes into the store
 *     ... the kernel's call ...
 *     mm_gone or mm_spared        named: by what the kernel answered
 *   mm_let_names_go
 */
#ifndef MM_ROOM_NAMES_H
#define MM_ROOM_NAMES_H

#include "engine/engine.h"

#pragma GCC visibility push(hidden)

/* mount_view.c */
extern int mm_elsewhere;                 /* names may lead elsewhere than in the rest of the run */
void mm_join_elsewhere(struct mm_area *area);
int mm_leads_elsewhere(const char *path);
void mm_said_elsewhere(const char *path);

/* known_folders.c */
int mm_present_folder(char *out, size_t room);
int mm_known_folder(int dir, const char *folder, char *text, char *out);
void mm_folder_is_known(const char *text, int fd, uint32_t ways);

/* paths.c */
int mm_leads_to(const char *path, int fd);
int mm_path_of(int fd, char *out, size_t room);
int mm_locked_at(int dir, const char *path, int flags);
int mm_canonical(int dir, const char *path, char *out, size_t room);
int mm_canonical_beside(int dir, const char *path, int known_dir, const char *known_path, const char *known, char *out, size_t room);
int mm_canonical_in_root(int dir, const char *path, uint64_t resolve, char *out, size_t room);
int mm_canonical_follow(int dir, const char *path, char *out, size_t room);
int mm_names_a_file(const char *path);
int mm_has_last_name(const char *path);
int mm_below(const char *path, const char *folder);
int mm_tracked(const char *canonical);
int mm_ignore(const char *path);
void mm_said_too_long(void);

/* touch.c */
long mm_touch(const char *canonical);
long mm_look_in(const char *path, struct statx *st);
static inline long mm_look_at(const char *path, struct statx *st)
{
    long r = mm_statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, st);
    return UNLIKELY(r == -EACCES) ? mm_look_in(path, st) : r;
}
long mm_touch_looked(const char *canonical, long looked, const struct statx *st);
/* for the record of one that a call is about to make: 0, or -ENOSPC */
long mm_room_for_name(const char *canonical);
static inline long mm_touch_new(const char *canonical) { return mm_touch(canonical) ?: mm_room_for_name(canonical); }
long mm_touch_where_it_leads(char *name, int dir, uint64_t in_root);

struct mm_doomed {
    uint32_t slot;              /* 0: not a regular file */
    uint32_t linked;           /* this call put it into the store */
    uint32_t moves;            /* not yet: mm_take_away or mm_take_replaced is to be called instead of the kernel's call */
    uint64_t names;            /* names that it has outside the store */
    uint32_t mode;             /* of what stands there; 0: nothing */
};

struct mm_names {
    uint64_t held, mask;
};

/* names_lock.c */
void mm_hold_names(struct mm_names *names, const char *one, const char *other);
void mm_hold_all_names(struct mm_names *names);
void mm_let_names_go(struct mm_names *names);
uint32_t mm_ways(void);
void mm_way_changed(void);
int mm_name_is_held(const char *path);

/* Of what mm_canonical answers: the program's call would not fail for this reason, and must not pass unnoted. */
static inline int mm_resource_error(int e) { return e == -EMFILE || e == -ENFILE || e == -ENOMEM || e == -EIO; }

/* keep.c */
long mm_may_go(const char *path, const struct statx *st);
long mm_keep(const char *path, long looked, const struct statx *seen, const char *by, struct mm_doomed *doomed);
void mm_keep_nameless(uint32_t slot, int fd);
void mm_keep_left(uint32_t slot, const char *path);
int mm_only_kept(int fd);
void mm_spared(struct mm_doomed *doomed);
void mm_gone(struct mm_doomed *doomed);
int mm_named(const char *path);
void mm_file_named(const char *path, uint64_t dev, uint64_t ino);
void mm_by_another_name(uint32_t slot, const char *path, int tracked);

/* take.c */
long mm_take_away(const struct mm_doomed *doomed, int dir, const char *path);
long mm_take_replaced(struct mm_doomed *doomed, const struct statx *by, int from_dir, const char *from, int to_dir, const char *to);

/* files.c */
uint32_t mm_pif_for(const struct statx *st, const char *canonical, int created, long *error);
uint32_t mm_pif_to_keep(const struct statx *st, const char *canonical, long *error);
int mm_unreadable(const struct statx *st, const char *path);

/* border.c */
long mm_leave_scope(const char *path);
void mm_left_scope(const char *path);
void mm_left_for_good(uint32_t slot);
void mm_arrived(const char *path);

/* note_links.c */
struct mm_touch;
long mm_note_as_names(const struct mm_touch *record, const char *text, uint64_t at);
uint64_t mm_store_dev(void);

/* folders.c */
long mm_folder_moves(const char *from, const char *to);
void mm_folder_moved(const char *from, const char *to, int exchanged);

#pragma GCC visibility pop

#endif
