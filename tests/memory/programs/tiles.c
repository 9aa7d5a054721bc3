/* The processor's tiles (AMX): asked for, and used when it has come back.  77: there are none. */
#include <metamori.h>
#include <immintrin.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((target("amx-tile"))) static int use(void)
{
    static unsigned char how[64] __attribute__((aligned(64))) = { 1 }, from[1024], to[1024];
    how[16] = 64, how[48] = 16;
    for (int i = 0; i < 1024; i++)
        from[i] = (unsigned char)(i * 7);
    _tile_loadconfig(how);
    _tile_loadd(0, from, 64);
    _tile_stored(0, to, 64);
    _tile_release();
    return memcmp(from, to, sizeof to) == 0;
}

static void taken(void)
{
    int r = metamori_checkpoint();
    fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
}

int main(void)
{
    if (syscall(SYS_arch_prctl, 0x1023, 18))
        return 77;
    taken();
    printf("%d\n", use());
    taken();
    return 0;
}
