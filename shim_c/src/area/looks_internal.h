/* looks_internal.h - the tables of looks.c and looks_ahead.c. */
#ifndef MM_LOOKS_INTERNAL_H
#define MM_LOOKS_INTERNAL_H

#include "area/area.h"
#include "area/area_internal.h"
#include "area/looks.h"

#include <sys/stat.h>

#define PLAIN_FLAGS (MM_VIRTUAL | MM_INDEXED | MM_USED | MM_SETTLED | MM_LINKED | MM_SECONDS)
#define SEEN_FLAGS (MM_VIRTUAL | MM_INDEXED | MM_USED | MM_SECONDS)    /* of a file that only calls change which touch it */
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

/* looks_ahead.c */
int mm_looks_caught_up(struct mm_area *a, struct mm_looks *l);

#endif
