/* crc.h - CRC-32 as zlib's; seen by Python too. */
#ifndef MM_CRC_H
#define MM_CRC_H
#include <stdint.h>
#include <string.h>
#pragma GCC visibility push(hidden)
/* CDEF-BEGIN */
int mm_crc_folds(void);                  /* whether this processor has what makes it fast */
uint32_t mm_crc32(uint32_t crc, const void *bytes, uint64_t n);
long mm_crc32_of_file(int fd, uint64_t start, uint64_t n, uint32_t *crc);
long mm_crc32_of_short(const char *path, uint64_t n, int64_t mtime_ns, char *to, uint64_t room);
/* CDEF-END */
/* A hash that is quick for a few bytes; Python has it too (build_area.py). */
static inline uint64_t mm_mixed(uint64_t x, const void *bytes, size_t n)
{
    for (const char *p = bytes; n; ) {
        uint64_t word = 0;
        size_t step = n < 8 ? n : 8;
        memcpy(&word, p, step);
        x = (x ^ word) * 0x9e3779b97f4a7c15ull;
        x ^= x >> 29;
        p += step, n -= step;
    }
    return x;
}
#pragma GCC visibility pop
#endif
