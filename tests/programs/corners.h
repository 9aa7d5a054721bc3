/* What the programs about calls that meet each other seldom have in common; each has its CASES.
 * Run in a folder with the files old (65536 bytes), twin (the same) and the folders one, two (each with the files a and b
 * of 5000 bytes, and the folder in with the file c). */
#include "say.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

enum { SIZE = 65536, PAGE = 4096 };
#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

static char room[4 * SIZE];
static int fd, caught;

static void sums(const char *name)
{
    unsigned sum = 0;
    int f = open(name, O_RDONLY);
    long got = f < 0 ? -1 : read(f, room, sizeof room);
    for (long i = 0; i < got; i++)
        sum = sum * 31 + (unsigned char)room[i];
    printf("%s: %ld %08x\n", name, got, sum);
    close(f);
}

static void count(int number) { caught += number > 0; }

/* scattered: some blocks redirected, some in place */
static void scatter(int f)
{
    pwrite(f, "first", 5, 10);
    memset(room, 's', 3 * PAGE);
    pwrite(f, room, 3 * PAGE, 5 * PAGE + 100);
    pwrite(f, "last", 4, SIZE - 2);
}

#define CASE(name) {#name, case_##name}
struct corner { const char *name; void (*run)(void); };
#define CASES static const struct corner cases[]

static int run_corner(int count_of, char **word, const struct corner *some, unsigned count)
{
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    fd = open("old", O_RDWR);
    metamori_checkpoint();
    for (unsigned i = 0; i < count; i++)
        if (count_of == 2 && strcmp(word[1], some[i].name) == 0)
            return some[i].run(), fflush(stdout);
    return 99;
}
#define MAIN int main(int count_of, char **word) { return run_corner(count_of, word, cases, sizeof cases / sizeof *cases); }
