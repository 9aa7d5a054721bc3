/* crc.c - CRC-32 as zlib's, of memory and of files.
 *
 * Where the processor multiplies without carries, 64 bytes are folded at a time: Gopal et al., "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), with that paper's constants for the reflected
 * polynomial. Elsewhere byte by byte; a caller who has something better asks mm_crc_folds.
 */
#define _GNU_SOURCE
#include "base/crc.h"
#include "base/sys.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

static uint32_t table[256];

static uint32_t by_bytes(uint32_t c, const unsigned char *p, uint64_t n)
{
    if (!table[255]) {                 /* the last one is written last; whoever comes at the same time writes the same */
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t x = i;
            for (int k = 0; k < 8; k++)
                x = x & 1 ? 0xedb88320u ^ x >> 1 : x >> 1;
            __atomic_store_n(&table[i], x, __ATOMIC_RELEASE);
        }
    }
    while (n--)
        c = table[(c ^ *p++) & 255] ^ c >> 8;
    return c;
}

#if defined(__x86_64__)
#define LOAD(at) _mm_loadu_si128((const __m128i *)(at))
/* `x` moved on by the distance of the constants in `k`, and what lies there added */
#define FOLD(x, k, more) \
    _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x11), _mm_clmulepi64_si128(x, k, 0x00)), more)

/* n is a multiple of 16, at least 64; c is the register. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t by_folding(uint32_t c, const unsigned char *p, uint64_t n)
{
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0),
                  by_8 = _mm_set_epi64x(0, 0x0163cd6124), barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641),
                  low = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i a = _mm_xor_si128(LOAD(p), _mm_cvtsi32_si128((int)c)), b = LOAD(p + 16), d = LOAD(p + 32), e = LOAD(p + 48);

    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        a = FOLD(a, by_64, LOAD(p));
        b = FOLD(b, by_64, LOAD(p + 16));
        d = FOLD(d, by_64, LOAD(p + 32));
        e = FOLD(e, by_64, LOAD(p + 48));
    }
    a = FOLD(a, by_16, b);
    a = FOLD(a, by_16, d);
    a = FOLD(a, by_16, e);
    for (; n; p += 16, n -= 16)
        a = FOLD(a, by_16, LOAD(p));
    /* 128 bits to 64, then to the 32 of the register */
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_16, 0x10));
    a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low), by_8, 0x00));
    b = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low), barrett, 0x10), low);
    a = _mm_xor_si128(a, _mm_clmulepi64_si128(b, barrett, 0x00));
    return (uint32_t)_mm_extract_epi32(a, 1);
}
#endif

/* One instruction, and only for who has a checksum to make: __builtin_cpu_supports has a constructor that asks many
 * times in every program, and on a virtual machine each is an exit to the host (adr/0017). */
int mm_crc_folds(void)
{
#if defined(__x86_64__)
    unsigned a, b, c = 0, d;           /* every x86-64 has this leaf */
    __cpuid(1, a, b, c, d);
    return (c & bit_PCLMUL) && (c & bit_SSE4_1);
#else
    return 0;
#endif
}

/* crc is that of what came before, 0 at the beginning. */
uint32_t mm_crc32(uint32_t crc, const void *bytes, uint64_t n)
{
    const unsigned char *p = bytes;
    uint32_t c = ~crc;
#if defined(__x86_64__)
    static int folds;                  /* 1: yes, -1: no */
    int known = __atomic_load_n(&folds, __ATOMIC_RELAXED);
    if (!known)
        __atomic_store_n(&folds, known = mm_crc_folds() ? 1 : -1, __ATOMIC_RELAXED);
    if (known > 0 && n >= 64) {
        c = by_folding(c, p, n & ~(uint64_t)15);
        p += n & ~(uint64_t)15;
        n &= 15;
    }
#endif
    return ~by_bytes(c, p, n);
}

/* Bytes [start, start + n) of a file, through memory that stays in the processor's cache: how many there were; or -errno. */
long mm_crc32_of_file(int fd, uint64_t start, uint64_t n, uint32_t *crc)
{
    enum { PIECE = 64 << 10 };
    void *piece = malloc(PIECE);
    uint64_t done = 0;
    long r = piece ? 1 : -ENOMEM;

    while (r > 0 && done < n) {
        r = sys_pread(fd, piece, n - done < PIECE ? n - done : PIECE, (off_t)(start + done));
        if (r > 0) {
            *crc = mm_crc32(*crc, piece, (uint64_t)r);
            done += (uint64_t)r;
        } else if (r == -EINTR) {
            r = 1;
        }
    }
    free(piece);
    return r < 0 ? r : (long)done;
}

/* A short file's bytes into memory, and zeros after them up to the end of the room: 2^32 and their CRC-32.  0, and nothing
 * counts: it is not a regular file of n bytes and of this time of change once they have been read.  Else -errno. */
long mm_crc32_of_short(const char *path, uint64_t n, int64_t mtime_ns, char *to, uint64_t room)
{
    struct stat st;
    int fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0)
        return fd;
    long r = sys_pread(fd, to, n, 0), e = sys(SYS_fstat, fd, &st);
    sys_close(fd);
    if (r < 0 || e < 0)
        return r < 0 ? r : e;
    int64_t changed = sys_time_ns(st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec);
    if ((uint64_t)r != n || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != n || changed != mtime_ns)
        return 0;
    memset(to + n, 0, room - n);
    return 1l << 32 | mm_crc32(0, to, n);
}
