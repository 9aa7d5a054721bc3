/* ring.c - an MPI stencil on a ring: what it prints depends on nothing but the number of steps and ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **words) {
    int rank, ranks, size = 20000;
    double *a = calloc(size + 2, 8), *b = calloc(size + 2, 8), *other, sum, all;
    MPI_Init(&count, &words), MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < size + 2; i++) a[i] = i * rank % 17;
    for (int t = 0; t < atoi(words[1]); t++, other = a, a = b, b = other) {
        int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
        MPI_Comm all_of = MPI_COMM_WORLD;
        MPI_Sendrecv(&a[size], 1, MPI_DOUBLE, next, 1, &a[0], 1, MPI_DOUBLE, last, 1, all_of, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&a[1], 1, MPI_DOUBLE, last, 2, &a[size + 1], 1, MPI_DOUBLE, next, 2, all_of, MPI_STATUS_IGNORE);
        for (int i = 1; i <= size; i++) b[i] = (a[i - 1] + a[i] + a[i + 1]) / 3;
        if (t % 500) continue;
        sum = 0;
        for (int i = 1; i <= size; i++) sum += b[i];
        MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (!rank) printf("%d %.9f\n", t, all), fflush(stdout);
    }
    return MPI_Finalize();
}
