/* For programs whose whole output is compared with that of a native run: each result on a line of its own. */
#ifndef SAY_H
#define SAY_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <metamori.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int say_round;

/* An expression, its value, and why when it is negative. */
#define SAY(expression)                                                                                        \
    do {                                                                                                       \
        errno = 0;                                                                                             \
        long long say_value = (long long)(expression);                                                         \
        printf("%d:%d %s = %lld%s%s\n", say_round, __LINE__, #expression, say_value, say_value < 0 ? " " : "", \
               say_value < 0 ? strerrorname_np(errno) : "");                                                   \
    } while (0)

/* Bytes as text; what is not printable as a dot. */
static inline void say_bytes(const char *what, const char *bytes, long long length)
{
    printf("%d %s %lld \"", say_round, what, length);
    for (long long i = 0; i < length && i < 60; i++)
        putchar(bytes[i] >= 32 && bytes[i] < 127 ? bytes[i] : '.');
    printf("\"\n");
}

/* Runs the exercise over and over, with a checkpoint after each round (without Metamori: only the rounds). */
static inline int say_rounds(int rounds, void (*exercise)(void))
{
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    for (say_round = 1; say_round <= rounds; say_round++) {
        exercise();
        fflush(stdout);
        if (metamori_checkpoint() < 0 && errno != ENOSYS)
            printf("checkpoint: %s\n", strerrorname_np(errno));
    }
    return 0;
}
#endif
