/* solver.c - try, fail, go back, try differently.
 *
 * An explicit heat equation whose time step is far too long: it diverges.  Every 50 steps the solver takes a checkpoint if all
 * is well.  When the solution has grown beyond what it can be, the solver rolls itself back: memory, and the history that
 * it has written to a file.  It finds itself in the checkpoint's call, which returns 0 this time; it halves its step and
 * takes a checkpoint of that decision, so that a second failure goes back to there.
 *
 *   cc solver.c $(metamori config --cflags --libs) -o solver && metamori run --memory -- ./solver && cat history
 */
#include <math.h>
#include <metamori.h>
#include <stdio.h>
#include <stdlib.h>

#define POINTS 101
#define END 0.02

static double u[POINTS], next[POINTS];

static void start(void)
{
    for (int i = 0; i < POINTS; i++)
        u[i] = sin(acos(-1) * i / (POINTS - 1));
}

/* One step; the largest value. */
static double step(double dt)
{
    double h = 1.0 / (POINTS - 1), largest = 0;
    for (int i = 1; i < POINTS - 1; i++)
        next[i] = u[i] + dt / (h * h) * (u[i - 1] - 2 * u[i] + u[i + 1]);
    for (int i = 1; i < POINTS - 1; i++) {
        u[i] = next[i];
        largest = fmax(largest, fabs(u[i]));
    }
    return largest;
}

/* Where the program comes back after a rollback; the last good index. */
static int save(double *dt)
{
    int good = metamori_checkpoint();
    while (good == 0) {
        *dt /= 2;
        fprintf(stderr, "diverged: going on with dt = %g\n", *dt);
        good = metamori_checkpoint();
    }
    return good;
}

int main(void)
{
    double t = 0, dt = 4e-4;
    FILE *history = fopen("history", "w");
    start();
    /* rounding errors alone would take long to grow: a disturbance, as real data has */
    for (int i = 0; i < POINTS; i++)
        u[i] += (i % 2 ? 1e-6 : -1e-6) * (i && i < POINTS - 1);
    int good = save(&dt);
    for (int n = 1; t < END; n++) {
        double largest = step(dt);
        t += dt;
        fprintf(history, "%d %.6f %.9e\n", n, t, largest);
        if (largest > 1.1) {
            if (good < 0 || metamori_restore(good) < 0) {
                fprintf(stderr, "diverged, and there is no way back: run me under metamori run --memory\n");
                return 1;
            }
        }
        if (n % 50 == 0)
            good = save(&dt);
    }
    fclose(history);
    double exact = exp(-acos(-1) * acos(-1) * t);
    printf("t = %.6f, u = %.6f, exact %.6f\n", t, u[POINTS / 2], exact);
    return fabs(u[POINTS / 2] - exact) > 1e-3;
}
