/* Churns the heap, writes half-filled streams, and takes its own checkpoints. */
#include <metamori.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static __thread int local;

int main(void)
{
    FILE *f = fopen("lines", "w");
    char **p = calloc(1000, sizeof *p);
    unsigned s = 1;
    for (int i = 0; i < 400; i++) {
        for (int k = 0; k < 1000; k++) {
            s = s * 1103515245 + 12345;
            unsigned j = s / 65536 % 1000;
            free(p[j]);
            p[j] = malloc(s / 256 % 5000 + 1);
            p[j][0] = (char)s;
            local += p[j][0];
        }
        fprintf(f, "line %d %u %d\n", i, s, local);
        printf("step %d %u %d\n", i, s, local);
        if (i % 100 == 50) {
            fflush(stdout);
            int r = metamori_checkpoint();
            fprintf(stderr, r > 0 ? "taken\n" : r == 0 ? "came back\n" : "none: %m\n");
        }
    }
    fclose(f);
    printf("end %d\n", local);
    return 7;
}
