/* looks.h - what a checkpoint takes of the names and files of an instant; looks.c says how. */
#ifndef MM_LOOKS_H
#define MM_LOOKS_H

#include "area/layout.h"

/* CDEF-BEGIN */
/* What stands at a path. */
struct mm_looked {
    uint64_t note;             /* the first note of the path in the journal; 0: a file's own path that no note names */
    uint64_t path;             /* offset in `text` */
    uint32_t path_length;
    uint32_t known;            /* 0: what follows is not told */
    uint64_t dev, ino, size, nlink; int64_t mtime_ns, ctime_ns;
    uint32_t mode, uid, gid;   /* mode 0: nothing is there */
    uint32_t slot;             /* of its PIF, 0: it has none */
};
/* A file that was touched.  Not plain: what follows is not told. */
#define MM_NOT_LOOKED 4294967295
struct mm_cut_file {
    uint32_t slot, plain;
    uint32_t looked;           /* what stands at its path; MM_NOT_LOOKED */
    uint32_t flags, refs, old_uid, old_gid, old_mode;
    uint64_t object, dev, ino, btime_ns, created, size, home_limit, cut;
    int64_t mtime_ns; uint64_t old_size; int64_t old_mtime_ns;
};
struct mm_looks {
    uint64_t bytes;            /* of all of it */
    uint64_t broken;           /* 0, or where the journal cannot be read */
    uint32_t names, files, preimages, folders, look;
    uint32_t other_notes, other_files;     /* Python's: names that are not simple, or were not, and files */
    struct mm_looked *looked;
    struct mm_cut_file *file;
    uint64_t *preimage;        /* of each such record its place in the journal, and the slot of its file */
    uint64_t *other_note;      /* the first note of each in the journal */
    uint32_t *other_file;      /* slots */
    char *text;
    uint64_t text_used;
    void *folder, *places;     /* of looks.c alone */
};

struct mm_looks *mm_looks_ahead(struct mm_area *area, uint64_t until);
struct mm_looks *mm_looks_take(struct mm_area *area, int look, struct mm_looks *ahead);
void mm_looks_free(struct mm_looks *looks);
uint64_t mm_looks_written(struct mm_area *area, const struct mm_looks *looks, struct mm_written *out, uint64_t room);
int mm_is_real(const char *folder, uint32_t length);
uint32_t mm_looks_present(const struct mm_looks *looks, const char *folder);
int mm_looks_all_in(const struct mm_looks *looks, const char *folder);
uint32_t mm_pif_due(struct mm_area *area, uint32_t slot);
int mm_looks_cut(struct mm_area *area, const struct mm_looks *looks);
void mm_pif_cut(struct mm_area *area, uint32_t slot, uint64_t size);
/* CDEF-END */

/* The rest is of looks.c and looks_ahead.c alone. */
#define PLAIN_FLAGS (MM_VIRTUAL | MM_INDEXED | MM_USED | MM_SETTLED | MM_LINKED | MM_SECONDS | MM_TOLD)
#define SEEN_FLAGS (MM_VIRTUAL | MM_INDEXED | MM_USED | MM_SECONDS | MM_TOLD)    /* of a file that only calls change which touch it */
#define NEAR 8                           /* rows ahead of the one at hand: their memory is asked for early */

struct folder {                          /* around names that were looked at */
    const char *path;
    uint32_t length, present;            /* present: names in it that stand for something */
    uint32_t real;                       /* 0: nobody can tell; 1: it is where its path says; 2: a link is on the way */
    uint32_t listed;                     /* it was counted what is in it: */
    uint32_t entries, leaf;              /* names; none of them is a folder's */
};

/* It has to be looked at again; a note says that a folder was there; its file says that it is as it was seen. */
enum mark { AGAIN = 1, WAS_FOLDER = 2, AS_SEEN = 4 };

struct places {                          /* a name's row, and its folder, by the path */
    uint32_t *row, *folder;
    unsigned char *mark;                 /* by row */
    uint64_t mask;
    uint64_t journal;                    /* up to where it was read */
    uint64_t epoch;                      /* that began before the look ahead; 0: there was none */
    uint64_t text_room;
    uint32_t name_room, file_room, preimage_room, full;    /* full: one of these was too small, and the rest is not told */
};

static inline struct places *places_of(const struct mm_looks *l) { return l->places; }

static inline int mm_looks_full(struct mm_looks *l)
{
    places_of(l)->full = 1;
    return 1;
}

/* Its bytes may have changed since, and nobody was told so. */
static inline int mm_pif_unseen(const struct mm_header *h, const struct mm_pif *p)
{
    return p->flags & MM_MAPPED || p->let_go > h->committed_epoch;
}

static inline int mm_pif_since(const struct mm_header *h, const struct mm_pif *p)
{
    return p->epoch > h->committed_epoch || mm_pif_unseen(h, p);
}

/* looks.c */
struct mm_looks *mm_looks_room(struct mm_area *a, uint64_t until, int goes_on);
struct folder *mm_looks_folder(struct mm_looks *l, const char *path, uint32_t length);
uint32_t mm_looks_row(struct mm_area *a, struct mm_looks *l, const char *path, uint32_t length, uint64_t note);
void mm_looks_see(struct mm_area *a, struct mm_looks *l, struct mm_looked *row);
void mm_looks_notes(struct mm_area *a, struct mm_looks *l, uint64_t until, uint32_t ahead);
void mm_looks_tell(struct mm_cut_file *f, const struct mm_pif *p, const struct mm_looked *row);
void mm_looks_file(struct mm_area *a, struct mm_looks *l, struct mm_cut_file *f, uint32_t slot, uint32_t looked);
void mm_looks_more(struct mm_area *a, struct mm_looks *l, uint32_t slot);
void mm_looks_list(const struct mm_looks *l, const char *path, uint32_t length);

#endif
