/* area_fuzz.c - a run area that another party has made or damaged, under libFuzzer: what mm_sound calls sound is walked as the
 * completion of a killed run walks it, and nothing may lead outside (a fault, AddressSanitizer).
 *
 * An input is a list of changes to an area with two files, descriptors, a cache frame, free pages and a journal:
 * region, offset (16 bits, of 4 bytes), four bytes.  `make fuzz` builds it with clang.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "area/area.c"
#include "area/cache.c"
#include "area/lock.c"
#include "area/known_numbers.c"
#include "area/processes.c"
#include "area/slots.c"
#include "area/space_reserve.c"
#include "area/area_check.c"
#undef FAN
#include "area/table.c"

long mm_open_spare(int dir, const char *path, int flags, int mode) { return sys_openat(dir, path, flags, mode); }
void mm_close_spare(int fd) { sys_close(fd); }

static char scratch[8][SCRATCH_BYTES];
static int taken;
char *mm_scratch_take(void) { return scratch[taken++ & 7]; }
void mm_scratch_give(char **p) { (void)p; taken--; }
int mm_owner_gone(uint32_t tid, const void *word) { (void)tid; (void)word; return 1; }
uint64_t mm_start_time(uint32_t pid) { (void)pid; return 0; }
int mm_is_still(uint32_t pid, uint64_t began) { (void)pid, (void)began; return 0; }
uint64_t mm_boot(void) { return 0; }
uint64_t mm_area_place;
void mm_lift_limit(int back) { (void)back; }

static struct mm_area *area;
static char *whole[REGIONS];           /* as it was made */
static size_t size_of[REGIONS];
static char store[] = "/dev/shm/metamori-area-XXXXXX";

static void gone(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", store);
    if (system(command))
        return;
}

static uint32_t a_file(uint64_t ino, const char *path)
{
    uint32_t slot = mm_pif_new(area, 1, ino, 7, path);
    struct mm_pif *p = mm_pif_at(area, slot);
    if (!slot || mm_table_set(area, p, ino * 600, 32, 40) || mm_saved_set(area, p, 3, 90, 2))
        abort();
    mm_pif_touched(area, slot);
    mm_pif_mapped(area, slot);
    return slot;
}

static void make_area(void)
{
    char path[64];
    if (!mkdtemp(store))
        abort();
    atexit(gone);
    snprintf(path, sizeof path, "%s/run", store);
    if (mkdir(path, 0700) || !(area = mm_attach(store, 1)))
        abort();
    area->head->next_block = 100;      /* more than the tables below name */
    uint32_t process = mm_process_join(area, 1234, 5, 0), fit = mm_fit_new(area);
    uint32_t one = a_file(11, "/somewhere/one"), two = a_file(12, "/somewhere/two");
    mm_fit_at(area, fit)->slot = one;
    mm_pif_at(area, one)->refs = 1;
    mm_fit_ref(area, fit);
    mm_fd_set(area, process, 3, fit);
    mm_pif_at(area, two)->flags |= MM_NAMELESS;
    mm_frame_at(area, mm_frame_take(area, one, 2))->high = 100;
    mm_frame_free(area, mm_frame_take(area, two, 3));
    uint32_t page = mm_page_take(area), other = mm_page_take(area);
    mm_page_give(area, page);
    mm_page_give(area, other);
    struct mm_touch touch = { .type = MM_TOUCH, .path_length = 4, .xattrs_length = 4 };
    struct mm_preimage image = { .type = MM_PREIMAGE, .slot = one, .start = 0, .end = 4096 };
    mm_journal_append(area, &touch, sizeof touch, "/a/bnote", 8);
    mm_journal_append(area, &image, sizeof image, "", 0);
    for (int r = 0; r < REGIONS; r++) {
        size_of[r] = r == HEADER ? sizeof(struct mm_header) : r == PAGES || r == CACHE ? 20 * MM_BLOCK : 4096;
        whole[r] = malloc(size_of[r]);
        memcpy(whole[r], area->segment[0][r], size_of[r]);
    }
}

/* Where completing a run looks, and what it changes. */
static void walk(void)
{
    static struct mm_range ranges[64];
    static int32_t fds[64];
    static uint32_t fits[64];
    struct mm_header *h = area->head;
    volatile size_t sum = 0;
    for (uint32_t i = 1; i < h->process_high; i++)
        sum += mm_fd_list(area, i, fds, fits, 64);
    mm_release_dead(area);
    for (uint32_t i = 1; i < h->pif_count; i++) {
        struct mm_pif *p = mm_pif_at(area, i);
        if (!(p->flags & MM_USED))
            continue;
        sum += strlen(mm_path_at(area, p->path)) + mm_pif_find(area, p->dev, p->ino, 0);
        sum += mm_collect(area, p, 0, 0, ranges, 64) + mm_collect_saved(area, p, 1, 0, 0, ranges, 64);
        sum += mm_set_path(area, p, "/somewhere/else/with/a/longer/name/than/it/had/before/by/very/much/indeed");
        sum += mm_table_set(area, p, 1 << 20, 50, 3);
        mm_cache_drop(area, i);
        mm_table_clear(area, p, i & 1 ? 700 : 0);
        mm_pif_forget(area, i);
    }
    for (uint32_t slot = h->dirty; slot; slot = mm_pif_at(area, slot)->next_dirty)
        sum++;
    for (uint32_t slot = h->mapped; slot; slot = mm_pif_at(area, slot)->next_mapped)
        sum++;
    uint32_t made = mm_pif_new(area, 5, 5, 5, "/new"), fit = mm_fit_new(area);
    if (made)
        sum += mm_table_set(area, mm_pif_at(area, made), 77, 3, 1) + mm_collect(area, mm_pif_at(area, made), 0, 0, ranges, 64);
    sum += fit;
    for (uint64_t at = h->committed_journal > 8 ? h->committed_journal : 8; at < h->journal_tail;)
        at += *(const uint32_t *)mm_record_at(area, at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[256];
    if (!area)
        make_area();
    for (; size >= 7; data += 7, size -= 7) {
        int region = data[0] % REGIONS;
        size_t at = (data[1] | data[2] << 8) * 4;
        if (region == HEADER && data[0] & 128)     /* its last part: buckets */
            at += offsetof(struct mm_header, bucket);
        if (at + 4 <= size_of[region])
            memcpy(area->segment[0][region] + at, data + 3, 4);
    }
    area->head->lock = 0;
    if (mm_sound(area, why, sizeof why) > 0)
        walk();
    for (int r = 0; r < REGIONS; r++)
        memcpy(area->segment[0][r], whole[r], size_of[r]);
    return 0;
}
