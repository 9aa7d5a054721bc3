/* fti.h - FTI's interface, served by Metamori's levels.
 *
 * Functions, types and constants are those of FTI 0.9.9's manual and of FTI 1.6; compile with the mpicc of the MPI at
 * hand and link what `metamori config --fti --libs` says. The library itself knows no MPI: what depends on MPI_Comm is
 * compiled here, in the program, by weak functions.
 */
#ifndef FTI_H
#define FTI_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifndef __cplusplus
#include <stdbool.h>
#endif

#define FTI_BUFS 256                   /* room of names */
#define FTI_WORD 16
#define FTI_DONE 1                     /* FTI_Checkpoint, FTI_Snapshot: a checkpoint was taken */
#define FTI_SCES 0
#define FTI_NSCS -1
#define FTI_NREC -2                    /* no checkpoint is left to recover from */
#define FTI_HEAD 2                     /* FTI_Init with keep_heads_alive = 1: this process is a head */

#define FTI_EROR 4
#define FTI_WARN 3
#define FTI_INFO 2
#define FTI_DBUG 1

#define FTI_BASE 990
#define FTI_CKTW 991
#define FTI_XORW 992
#define FTI_RSEW 993
#define FTI_PFSW 994
#define FTI_ENDW 995                   /* sent to a head with final_tag: the execution is over */
#define FTI_REJW 996

#define FTI_L1 1
#define FTI_L2 2
#define FTI_L3 3
#define FTI_L4 4
#define FTI_L1_DCP 5
#define FTI_L2_DCP 6
#define FTI_L3_DCP 7
#define FTI_L4_DCP 8

#define FTI_SI_FAIL 0x4
#define FTI_SI_SCES 0x3
#define FTI_SI_ACTV 0x2
#define FTI_SI_PEND 0x1
#define FTI_SI_NINI 0x0

#ifdef __cplusplus
extern "C" {
#endif

typedef int fti_id_t;
typedef fti_id_t FTIT_type;
typedef unsigned long long FTIT_hsize_t;

typedef struct FTIT_H5Group {
    int id;
} FTIT_H5Group;

/* The manual's description of a structure: filled in by FTI_AddSimpleField and FTI_AddComplexField. */
typedef struct FTIT_typeField {
    FTIT_type type;
    size_t offset;
    int rank;
    int dimLength[32];
    char name[FTI_BUFS];
} FTIT_typeField;

typedef struct FTIT_complexType {
    int length;
    size_t size;
    char name[FTI_BUFS];
    FTIT_typeField field[FTI_BUFS];
} FTIT_complexType;

typedef enum FTIT_attributeFlag {
    FTI_ATTRIBUTE_NONE = 0,
    FTI_ATTRIBUTE_NAME = 1,
    FTI_ATTRIBUTE_DIM = 2
} FTIT_attributeFlag;

typedef struct FTIT_dimension {
    int ndims;
    int count[32];
} FTIT_dimension;

typedef struct FTIT_attribute {
    FTIT_dimension dim;
    char name[FTI_BUFS];
} FTIT_attribute;

typedef struct FTIT_configuration {
    char cfgFile[FTI_BUFS], localDir[FTI_BUFS], glbalDir[FTI_BUFS], metadDir[FTI_BUFS];
    int saveLastCkpt, keepL4Ckpt, verbosity, blockSize, transferSize, ckptTag, stageTag, finalTag, generalTag, test;
    int ioMode, dcpEnabled, dcpMode, dcpBlockSize, stagingEnabled, keepHeadsAlive;
} FTIT_configuration;

typedef struct FTIT_execution {
    char id[FTI_BUFS];
    int reco, ckptId, nbVar;
} FTIT_execution;

typedef struct FTIT_topology {
    int nbProc, nbNodes, myRank, splitRank, nodeSize, nbHeads, nbApprocs, groupSize, sectorID, nodeID, groupID;
    int amIaHead, headRank, groupRank, right, left;
} FTIT_topology;

typedef struct FTIT_checkpoint {
    int isInline, ckptIntv;
} FTIT_checkpoint;

typedef struct FTIT_injection {
    int rank, index, position, number, frequency;
} FTIT_injection;

typedef struct FTIT_allConfiguration {
    FTIT_configuration configuration;
    FTIT_execution execution;
    FTIT_topology topology;
    FTIT_checkpoint checkpoint[5];     /* [1] to [4] */
    FTIT_injection injection;
} FTIT_allConfiguration;

extern FTIT_type FTI_CHAR, FTI_SHRT, FTI_INTG, FTI_LONG, FTI_UCHR, FTI_USHT, FTI_UINT, FTI_ULNG;
extern FTIT_type FTI_SFLT, FTI_DBLE, FTI_LDBE;

int FTI_Status(void);
int FTI_InitType(FTIT_type *type, int size);
int FTI_Protect(int id, void *ptr, long count, FTIT_type type);
int FTI_ProtectWithName(int id, void *ptr, long count, FTIT_type type, const char *name);
long FTI_GetStoredSize(int id);
void *FTI_Realloc(int id, void *ptr);
int FTI_Checkpoint(int id, int level);
int FTI_Recover(void);
int FTI_Snapshot(void);
int FTI_Finalize(void);
int FTI_GetStageDir(char *stageDir, int maxLen);
int FTI_GetStageStatus(int ID);
int FTI_SendFile(const char *lpath, const char *rpath);
int FTI_RecoverVarInit(void);
int FTI_RecoverVar(int id);
int FTI_RecoverVarFinalize(void);
int FTI_InitICP(int id, int level, bool activate);
int FTI_AddVarICP(int varID);
int FTI_FinalizeICP(void);
int FTI_setIDFromString(const char *name);
int FTI_getIDFromString(const char *name);
int FTI_BitFlip(int datasetID);

/* Types and datasets of HDF5 files */
int FTI_InitComplexType(FTIT_type *newType, FTIT_complexType *typeDefinition, int length, size_t size,
                        const char *name, FTIT_H5Group *h5group);
void FTI_AddSimpleField(FTIT_complexType *typeDefinition, FTIT_type *ftiType, size_t offset, int id, const char *name);
void FTI_AddComplexField(FTIT_complexType *typeDefinition, FTIT_type *ftiType, size_t offset, int rank, int *dimLength,
                         int id, const char *name);
fti_id_t FTI_InitCompositeType(const char *name, size_t size, FTIT_H5Group *h5g);
int FTI_AddScalarField(fti_id_t id, const char *name, fti_id_t fid, size_t offset);
int FTI_AddVectorField(fti_id_t id, const char *name, fti_id_t tid, size_t offset, int ndims, int *dim_sizes);
int FTI_InitGroup(FTIT_H5Group *h5group, const char *name, FTIT_H5Group *parent);
int FTI_RenameGroup(FTIT_H5Group *h5group, const char *name);
int FTI_DefineDataset(int id, int rank, int *dimLength, const char *name, FTIT_H5Group *h5group);

/* Metamori's own: the index of the last checkpoint taken or recovered, and the way back to any of them. */
int FTIM_Index(void);
int FTIM_RecoverIndex(int index);

/* What the weak functions below call. */
int fti_init_(const char *config, int comm, const char *mpi, int *fti_comm);
int fti_set_attribute_(int id, const char *name, int ndims, int *count, int flag);
int fti_get_config_(const char *config, FTIT_allConfiguration *into);

#define FTI_WEAK_ __attribute__((weak))

/* The program's processes without the heads. */
FTI_WEAK_ MPI_Comm FTI_COMM_WORLD;

FTI_WEAK_ int FTI_Init(const char *configFile, MPI_Comm globalComm)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, comm = 0;
    MPI_Get_library_version(mpi, &length);
    int result = fti_init_(configFile, (int)MPI_Comm_c2f(globalComm), mpi, &comm);
    FTI_COMM_WORLD = comm ? MPI_Comm_f2c((MPI_Fint)comm) : globalComm;
    if (result == FTI_ENDW)            /* a head, the execution is over, and so is MPI */
        exit(0);
    return result;
}

FTI_WEAK_ int FTI_SetAttribute(int id, FTIT_attribute attribute, FTIT_attributeFlag flag)
{
    return fti_set_attribute_(id, attribute.name, attribute.dim.ndims, attribute.dim.count, (int)flag);
}

FTI_WEAK_ FTIT_allConfiguration FTI_GetConfig(const char *configFile, MPI_Comm globalComm)
{
    static FTIT_allConfiguration all;
    (void)globalComm;
    memset(&all, 0, sizeof all);
    fti_get_config_(configFile, &all);
    return all;
}

#ifdef __cplusplus
}
#else
/* Lengths of dimensions are int in the manual and int64_t in some versions since. */
static inline int fti_define_dataset_long_(int id, int rank, const int64_t *dimLength, const char *name,
                                           FTIT_H5Group *h5group)
{
    int lengths[32];
    for (int i = 0; i < rank && i < 32; i++)
        lengths[i] = (int)dimLength[i];
    return FTI_DefineDataset(id, rank, lengths, name, h5group);
}
static inline int fti_add_vector_long_(fti_id_t id, const char *name, fti_id_t tid, size_t offset, int ndims,
                                       const int64_t *sizes)
{
    int lengths[32];
    for (int i = 0; i < ndims && i < 32; i++)
        lengths[i] = (int)sizes[i];
    return FTI_AddVectorField(id, name, tid, offset, ndims, lengths);
}
#define FTI_DefineDataset(id, rank, dimLength, name, group) \
    _Generic((dimLength), long *: fti_define_dataset_long_, const long *: fti_define_dataset_long_, \
             default: FTI_DefineDataset)(id, rank, (void *)(dimLength), name, group)
#define FTI_AddVectorField(id, name, tid, offset, ndims, sizes) \
    _Generic((sizes), long *: fti_add_vector_long_, const long *: fti_add_vector_long_, \
             default: FTI_AddVectorField)(id, name, tid, offset, ndims, (void *)(sizes))
#endif
#endif
