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

#endif
