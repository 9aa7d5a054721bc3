/* many.c - the less common calls.  many WHAT: takes checkpoints and dies; run again it recovers and compares every byte.
 *   thousand   1,000 variables, some of no bytes         realloc  sizes that grow and shrink between checkpoints
 *   single     one variable at a time                    parts    a checkpoint whose variables come one by one
 *   token      heads that are ended by FTI's token and not by FTI_Finalize
 *   config     prints what FTI_GetConfig says            names    variables by name, with attributes */
#include <fti.h>
#include <stdio.h>
#include <unistd.h>

static int rank;

static unsigned char byte(long id, long i, int step)
{
    return (unsigned char)(id * 31 + i * 7 + step * 13 + rank);
}

static void fill(unsigned char *p, long id, long n, int step)
{
    for (long i = 0; i < n; i++)
        p[i] = byte(id, i, step);
}

static int wrong(const char *what, long id)
{
    fprintf(stderr, "rank %d: wrong %s %ld\n", rank, what, id);
    MPI_Abort(MPI_COMM_WORLD, 7);
    return 7;
}

static void same(unsigned char *p, long id, long n, int step)
{
    for (long i = 0; i < n; i++)
        if (p[i] != byte(id, i, step))
            wrong("byte in variable", id);
}

static void must(int result, int expected, const char *what)
{
    if (result != expected) {
        fprintf(stderr, "rank %d: %s gave %d\n", rank, what, result);
        MPI_Abort(MPI_COMM_WORLD, 8);
    }
}

static void die(void)
{
    MPI_Barrier(FTI_COMM_WORLD);
    _exit(9);
}

static void thousand(int level)
{
    static unsigned char *p[1000];
    for (long id = 0; id < 1000; id++) {
        long n = id % 7 ? id * 3 : 0;
        p[id] = calloc(n + 1, 1);
        must(FTI_Protect(id, p[id], n, FTI_CHAR), FTI_SCES, "FTI_Protect");
    }
    if (FTI_Status() == 0) {
        for (int step = 1; step <= 3; step++) {     /* the second changes only every tenth */
            for (long id = 0; id < 1000; id += step == 2 ? 10 : 1)
                fill(p[id], id, id % 7 ? id * 3 : 0, step);
            must(FTI_Checkpoint(step, level), FTI_DONE, "FTI_Checkpoint");
        }
        die();
    }
    must(FTI_Recover(), FTI_SCES, "FTI_Recover");
    for (long id = 0; id < 1000; id++) {
        if (FTI_GetStoredSize(id) != (id % 7 ? id * 3 : 0))
            wrong("size of", id);
        same(p[id], id, id % 7 ? id * 3 : 0, 3);
    }
}

static void sizes(int level)
{
    long n[] = { 1000, 50000, 0, 200, 70000 };
    unsigned char *p = malloc(1), *other = malloc(1234);
    FTI_Protect(5, other, 1234, FTI_CHAR);
    if (FTI_Status() == 0) {
        for (int step = 0; step < 5; step++) {
            p = realloc(p, n[step] + 1);
            fill(p, 4, n[step], step);
            fill(other, 5, 1234, step);
            FTI_Protect(4, p, n[step], FTI_CHAR);
            must(FTI_Checkpoint(step + 1, level), FTI_DONE, "FTI_Checkpoint");
        }
        die();
    }
    FTI_Protect(4, p, 0, FTI_CHAR);
    if (FTI_GetStoredSize(4) != 70000)
        wrong("stored size of", 4);
    p = FTI_Realloc(4, p);
    must(FTI_Recover(), FTI_SCES, "FTI_Recover");
    same(p, 4, 70000, 4);
    same(other, 5, 1234, 4);
    for (int step = 3; step >= 0; step--) {         /* and any earlier one: Metamori's own call */
        p = realloc(p, 70000);
        FTI_Protect(4, p, 70000, FTI_CHAR);
        must(FTIM_RecoverIndex(step + 1), FTI_SCES, "FTIM_RecoverIndex");
        same(p, 4, n[step], step);
        same(other, 5, 1234, step);
    }
}

static void single(int level)
{
    static unsigned char a[3000], b[500], c[70];
    FTI_Protect(0, a, sizeof a, FTI_CHAR);
    FTI_Protect(1, b, sizeof b, FTI_CHAR);
    FTI_Protect(2, c, sizeof c, FTI_CHAR);
    if (FTI_Status() == 0) {
        fill(a, 0, sizeof a, 1), fill(b, 1, sizeof b, 1), fill(c, 2, sizeof c, 1);
        must(FTI_Checkpoint(1, level), FTI_DONE, "FTI_Checkpoint");
        die();
    }
    must(FTI_RecoverVarInit(), FTI_SCES, "FTI_RecoverVarInit");
    must(FTI_RecoverVar(2), FTI_SCES, "FTI_RecoverVar");
    must(FTI_RecoverVar(0), FTI_SCES, "FTI_RecoverVar");
    must(FTI_RecoverVar(99), FTI_NSCS, "FTI_RecoverVar of a variable that is none");
    must(FTI_RecoverVarFinalize(), FTI_SCES, "FTI_RecoverVarFinalize");
    same(a, 0, sizeof a, 1), same(c, 2, sizeof c, 1);
    for (unsigned i = 0; i < sizeof b; i++)
        if (b[i])
            wrong("variable that was not asked for", 1);
}

static void parts(int level)
{
    static unsigned char one[4000];
    FTI_Protect(1, one, sizeof one, FTI_CHAR);
    FTI_Protect(2, one, sizeof one, FTI_CHAR);
    FTI_Protect(3, one, 100, FTI_CHAR);
    if (FTI_Status() == 0) {
        must(FTI_InitICP(1, level, 0), FTI_SCES, "FTI_InitICP, not active");
        FTI_AddVarICP(1);
        must(FTI_FinalizeICP(), FTI_SCES, "FTI_FinalizeICP, not active");
        must(FTI_InitICP(2, level, 1), FTI_SCES, "FTI_InitICP");
        for (int id = 1; id <= 3; id++) {
            fill(one, id, sizeof one, 5);
            must(FTI_AddVarICP(id), FTI_SCES, "FTI_AddVarICP");
        }
        must(FTI_FinalizeICP(), FTI_DONE, "FTI_FinalizeICP");
        die();
    }
    FTI_RecoverVarInit();
    for (int id = 1; id <= 3; id++) {
        must(FTI_RecoverVar(id), FTI_SCES, "FTI_RecoverVar");
        same(one, id, id == 3 ? 100 : sizeof one, 5);
    }
    FTI_RecoverVarFinalize();
}

static void names(int level)
{
    static double field[12];
    static int number;
    int a = FTI_setIDFromString("field"), b = FTI_setIDFromString("number");
    if (FTI_Status() == 0 && (a == b || FTI_getIDFromString("field") != a || FTI_getIDFromString("nothing") != -1))
        wrong("id", a);
    FTI_Protect(a, field, 12, FTI_DBLE);
    FTI_Protect(b, &number, 1, FTI_INTG);
    FTIT_attribute about;
    memset(&about, 0, sizeof about);
    strcpy(about.name, "field"), about.dim.ndims = 2, about.dim.count[0] = 3, about.dim.count[1] = 4;
    must(FTI_SetAttribute(a, about, (FTIT_attributeFlag)(FTI_ATTRIBUTE_NAME | FTI_ATTRIBUTE_DIM)), FTI_SCES,
         "FTI_SetAttribute");
    if (FTI_Status() == 0) {
        field[11] = 2.5, number = 42;
        must(FTI_Checkpoint(1, level), FTI_DONE, "FTI_Checkpoint");
        die();
    }
    must(FTI_Recover(), FTI_SCES, "FTI_Recover");
    if (field[11] != 2.5 || number != 42)
        wrong("value", number);
}

static void token(int level)
{
    static int step;
    int end = FTI_ENDW, mine;
    FTI_Protect(1, &step, 1, FTI_INTG);
    if (FTI_Status() != 0) {
        must(FTI_Recover(), FTI_SCES, "FTI_Recover");
        if (step != 5)
            wrong("step", step);
        return;
    }
    step = 5;
    must(FTI_Checkpoint(1, level), FTI_DONE, "FTI_Checkpoint");
    MPI_Comm_rank(MPI_COMM_WORLD, &mine);
    MPI_Send(&end, 1, MPI_INT, mine - 1, 3107, MPI_COMM_WORLD);
    MPI_Finalize();
    exit(0);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (FTI_Init("config.fti", MPI_COMM_WORLD) != FTI_SCES)
        return 4;
    MPI_Comm_rank(FTI_COMM_WORLD, &rank);
    const char *what = argv[1];
    int level = argc > 2 ? atoi(argv[2]) : 1;
    if (!strcmp(what, "thousand"))
        thousand(level);
    else if (!strcmp(what, "realloc"))
        sizes(level);
    else if (!strcmp(what, "single"))
        single(level);
    else if (!strcmp(what, "parts"))
        parts(level);
    else if (!strcmp(what, "names"))
        names(level);
    else if (!strcmp(what, "token"))
        token(level);
    else if (rank == 0) {
        FTIT_allConfiguration all = FTI_GetConfig("config.fti", MPI_COMM_WORLD);
        printf("%d %d %d %d %d %s %d\n", all.configuration.blockSize, all.configuration.ioMode, all.topology.nbProc,
               all.topology.groupSize, all.checkpoint[2].ckptIntv, all.configuration.localDir,
               all.checkpoint[3].isInline);
    }
    FTI_Finalize();
    MPI_Finalize();
    return 0;
}
