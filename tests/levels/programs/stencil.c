/* stencil.c - a one-dimensional heat equation over MPI with FTI calls where the manual's CoMD listing has them. Each
 * rank appends to a trajectory and overwrites a restart file; a killed and resumed run must leave the same files.
 *
 *   stencil STEPS LEVEL [CELLS [EVERY]]    LEVEL 0: 1, 2, 3, 4 in turn
 * Prints "step N sum S" of rank 0 at the end; exits 3 when memory is not what the step says. With STENCIL_STOPS=N in the
 * environment it stands still, N checkpoints and a part of the way to the next one later, until it is killed.
 */
#include <fti.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

static void exchange(double *u, int n, int rank, int size)
{
    int left = rank ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(&u[1], 1, MPI_DOUBLE, left, 0, &u[n + 1], 1, MPI_DOUBLE, right, 0, FTI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[n], 1, MPI_DOUBLE, right, 0, &u[0], 1, MPI_DOUBLE, left, 0, FTI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    int rank, size, step = 0, seed[4] = { 0 }, taken = 0;
    MPI_Init(&argc, &argv);
    int steps = atoi(argv[1]), level = atoi(argv[2]);
    int n = argc > 3 ? atoi(argv[3]) : 5000, every = argc > 4 ? atoi(argv[4]) : 3;
    int stops = getenv("STENCIL_STOPS") ? atoi(getenv("STENCIL_STOPS")) : 0;
    int res = FTI_Init("config.fti", MPI_COMM_WORLD);
    if (res != FTI_SCES) {
        fprintf(stderr, "FTI_Init gave %d\n", res);
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
    MPI_Comm_rank(FTI_COMM_WORLD, &rank);
    MPI_Comm_size(FTI_COMM_WORLD, &size);
    double *u = calloc(n + 2, sizeof *u), *next = calloc(n + 2, sizeof *next);
    for (int i = 1; i <= n; i++)
        u[i] = sin(0.001 * (rank * n + i));
    char trajectory[64], restart[64];
    snprintf(trajectory, sizeof trajectory, "trajectory.%d", rank);
    snprintf(restart, sizeof restart, "restart.%d", rank);

    FTIT_type four;
    FTI_InitType(&four, sizeof seed);
    FTI_Protect(1, &step, 1, FTI_INTG);
    FTI_Protect(2, u, n + 2, FTI_DBLE);
    FTI_Protect(3, seed, 1, four);
    if (FTI_Status() != 0) {
        res = FTI_Recover();
        if (res != 0) {
            printf("Recovery failed! FTI_Recover returned %d.\n", res);
            MPI_Abort(MPI_COMM_WORLD, 5);
        }
        if (rank == 0)
            fprintf(stderr, "resumed at step %d\n", step);
        if (seed[0] != step * 7 + rank)
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    FILE *out = fopen(trajectory, "a");
    FILE *state = fopen(restart, access(restart, F_OK) == 0 ? "r+" : "w+");
    while (step < steps) {
        while (stops && taken >= stops && step % every == every - 1)
            pause();
        exchange(u, n, rank, size);
        for (int i = 1; i <= n; i++)
            next[i] = u[i] + 0.25 * (u[i - 1] - 2 * u[i] + u[i + 1]);
        memcpy(&u[1], &next[1], n * sizeof *u);
        step++;
        seed[0] = step * 7 + rank;
        fprintf(out, "%d %.17g\n", step, u[n / 2]);
        if (step % 2 == 0) {
            rewind(state);
            fwrite(u, sizeof *u, n / 4, state);
            fprintf(state, "%d\n", step);
        }
        if (step % every == 0) {
            res = FTI_Checkpoint(step, level ? level : 1 + step / every % 4);
            if (res != FTI_DONE) {
                printf("Checkpoint failed! FTI_Checkpoint returned %d.\n", res);
                MPI_Abort(MPI_COMM_WORLD, 6);
            }
            taken++;
        }
    }
    fclose(out);
    fclose(state);
    double mine = 0, sum = 0, parts[64];
    for (int i = 1; i <= n; i++)
        mine += u[i];
    MPI_Gather(&mine, 1, MPI_DOUBLE, parts, 1, MPI_DOUBLE, 0, FTI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < size; i++)   /* in the same order under every MPI */
        sum += parts[i];
    if (rank == 0)
        printf("step %d sum %.17g\n", step, sum);
    FTI_Finalize();
    MPI_Finalize();
    return 0;
}
