/* freestanding.c - the few functions of the libc that the engine cannot do without, and CRC-32. */
#include "memory/image_engine.h"

void own_copy(void *to, const void *from, uint64_t n)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

void own_fill(void *to, int byte, uint64_t n)
{
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(byte) : "memory");
}

uint64_t own_length(const char *text)
{
    uint64_t n = 0;
    while (text[n])
        n++;
    return n;
}

int own_equal(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

int own_begins(const char *text, const char *prefix)
{
    while (*prefix)
        if (*text++ != *prefix++)
            return 0;
    return 1;
}

uint64_t own_number(const char **text, int base)
{
    uint64_t value = 0;
    for (;; (*text)++) {
        int c = **text, digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
        if (digit >= base)
            return value;
        value = value * base + digit;
    }
}

char *own_decimal(char *end, uint64_t number)
{
    do
        *--end = '0' + number % 10;
    while (number /= 10);
    return end;
}

uint64_t own_now(void)
{
    struct timespec t;
    sys(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

void own_say(const char *a, const char *b, const char *c)
{
    const char *part[] = { "metamori: ", a, b, c, "\n" };
    for (int i = 0; i < 5; i++)
        sys(SYS_write, 2, part[i], own_length(part[i]));
}

static void crc_begin(void)
{
    uint32_t (*table)[256] = ENGINE->crc_table;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
        table[0][i] = c;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t i = 0; i < 256; i++)
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
    ENGINE->crc_ready = 1;
}

/* CRC-32 as zlib's, eight bytes at a time; crc is that of what came before, 0 at the beginning. */
uint32_t own_crc(uint32_t crc, const void *bytes, uint64_t n)
{
    if (!ENGINE->crc_ready)
        crc_begin();
    uint32_t (*t)[256] = ENGINE->crc_table;
    const unsigned char *p = bytes;
    uint32_t c = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t x = *(const uint64_t *)p ^ c;
        c = t[7][x & 255] ^ t[6][x >> 8 & 255] ^ t[5][x >> 16 & 255] ^ t[4][x >> 24 & 255] ^ t[3][x >> 32 & 255]
          ^ t[2][x >> 40 & 255] ^ t[1][x >> 48 & 255] ^ t[0][x >> 56];
    }
    while (n--)
        c = c >> 8 ^ t[0][(c ^ *p++) & 255];
    return ~c;
}
