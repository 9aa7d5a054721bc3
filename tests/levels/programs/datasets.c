/* datasets.c - structures, groups and named datasets, described with the manual's functions (and, with -DTODAY, with
 * those of today's FTI).  datasets: takes a checkpoint and dies; run again it recovers and says what it found. */
#include <fti.h>
#include <stdio.h>
#include <unistd.h>

struct atom { int species; double position[3]; char element[4]; };
struct cell { struct atom first; long count; float grid[2][3]; };

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (FTI_Init("config.fti", MPI_COMM_WORLD) != FTI_SCES)
        return 4;
    FTIT_H5Group lattice, inner;
    FTI_InitGroup(&lattice, "lattice", NULL);
    FTI_InitGroup(&inner, "inner", &lattice);
    FTI_RenameGroup(&inner, "core");
#ifdef TODAY
    int64_t three[] = { 3 }, grid[] = { 2, 3 }, four[] = { 4 }, shape[] = { 5, 4 };
    fti_id_t atom = FTI_InitCompositeType("atom", sizeof(struct atom), &lattice);
    FTI_AddScalarField(atom, "species", FTI_INTG, offsetof(struct atom, species));
    FTI_AddVectorField(atom, "position", FTI_DBLE, offsetof(struct atom, position), 1, three);
    FTI_AddVectorField(atom, "element", FTI_CHAR, offsetof(struct atom, element), 1, four);
    fti_id_t cell = FTI_InitCompositeType("cell", sizeof(struct cell), NULL);
    FTI_AddScalarField(cell, "first", atom, offsetof(struct cell, first));
    FTI_AddScalarField(cell, "count", FTI_LONG, offsetof(struct cell, count));
    FTI_AddVectorField(cell, "grid", FTI_SFLT, offsetof(struct cell, grid), 2, grid);
#else
    int three[] = { 3 }, grid[] = { 2, 3 }, four[] = { 4 }, shape[] = { 5, 4 };
    static FTIT_complexType atoms, cells;
    FTIT_type atom, cell;
    FTI_AddSimpleField(&atoms, &FTI_INTG, offsetof(struct atom, species), 0, "species");
    FTI_AddComplexField(&atoms, &FTI_DBLE, offsetof(struct atom, position), 1, three, 1, "position");
    FTI_AddComplexField(&atoms, &FTI_CHAR, offsetof(struct atom, element), 1, four, 2, "element");
    FTI_InitComplexType(&atom, &atoms, 3, sizeof(struct atom), "atom", &lattice);
    FTI_AddSimpleField(&cells, &atom, offsetof(struct cell, first), 0, "first");
    FTI_AddSimpleField(&cells, &FTI_LONG, offsetof(struct cell, count), 1, "count");
    FTI_AddComplexField(&cells, &FTI_SFLT, offsetof(struct cell, grid), 2, grid, 2, "grid");
    FTI_InitComplexType(&cell, &cells, 3, sizeof(struct cell), "cell", NULL);
#endif
    static struct cell c[20];
    static double field[6];
    static int empty[1];
    long double wide = 0;
    struct { char bytes[24]; } opaque = { "" };
    FTIT_type block;
    FTI_InitType(&block, sizeof opaque);
    FTI_Protect(0, c, 20, cell);
    FTI_ProtectWithName(1, field, 6, FTI_DBLE, "temperature");
    FTI_DefineDataset(0, 2, shape, "cells", &inner);
    FTI_Protect(2, empty, 0, FTI_INTG);
    FTI_Protect(3, &wide, 1, FTI_LDBE);
    FTI_Protect(4, &opaque, 1, block);
    if (FTI_Status() == 0) {
        for (int i = 0; i < 20; i++)
            c[i] = (struct cell){ { i, { i + .5, i + .25, -i }, "Fe" }, 1000 + i, { { i }, { 0, 0, i } } };
        for (int i = 0; i < 6; i++)
            field[i] = 1.5 * i;
        wide = 3.25L;
        strcpy(opaque.bytes, "not described");
        if (FTI_Checkpoint(7, 1) != FTI_DONE)
            return 5;
        _exit(9);
    }
    if (FTI_Recover() != FTI_SCES)
        return 6;
    printf("%d %g %s %ld %g %g %Lg %s %ld\n", c[19].first.species, c[19].first.position[1], c[19].first.element,
           c[19].count, c[19].grid[1][2], field[5], wide, opaque.bytes, FTI_GetStoredSize(2));
    FTI_Finalize();
    MPI_Finalize();
    return 0;
}
