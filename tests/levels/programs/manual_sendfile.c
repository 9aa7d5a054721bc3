#include "fti.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/types.h>

int main() {

    MPI_Init(NULL, NULL);
    FTI_Init("config.fti", MPI_COMM_WORLD);

int rank;
MPI_Comm_rank( FTI_COMM_WORLD, &rank );

char local_dir[512];
char remote_dir[] = "./";

// get local stage directory
if ( FTI_GetStageDir( local_dir, 512 ) != FTI_SCES ) {
    fprintf( stderr, "Failed to get the local directory.\n" );
    exit( EXIT_FAILURE );
}

char filename[512];
snprintf( filename, 512, "testfile-%d", rank );

char local_fn[512];
char remote_fn[512];

snprintf( local_fn, 512, "%s/%s", local_dir, filename );
snprintf( remote_fn, 512, "%s/%s", remote_dir, filename );

// crate local dummy file (1MB)
FILE *fstream = fopen( local_fn, "wb+" );
fsync( fileno( fstream ) );
fclose( fstream );
truncate( local_fn, 1024L*1024L );

int reqID;
// send local file to PFS
if ( ( reqID = FTI_SendFile( local_fn, remote_fn ) ) == FTI_NSCS ) {
    fprintf( stderr, "Failed to stage %s.", local_fn );
    exit( EXIT_FAILURE );
}

// check status of staging request
int reqStatus = FTI_SI_NINI; // set status to not initialized (null)
while( 1 ) {
    int request_final = 0;
    reqStatus = FTI_GetStageStatus( reqID );
    switch( reqStatus ) {
        case FTI_SI_ACTV:
            printf( "Stage Status: ACTIVE\n" );
            break;
        case FTI_SI_PEND:
            printf( "Stage Status: PENDING\n" );
            break;
        case FTI_SI_SCES:
            printf( "Stage Status: SUCCESS\n" );
            request_final = 1;
            break;
        case FTI_SI_FAIL:
            printf( "Stage Status: FAILED\n" );
            request_final = -1;
            break;
    }
    if ( request_final == -1 ) {
        fprintf( stderr, "Staging request with ID: %d failed!\n", reqID );
        break;
    }
    if ( request_final == 1 ) {
        printf( "Staging request with ID: %d succeed!\n", reqID );
        break;
    }
}

FTI_Finalize();
MPI_Finalize();

exit( EXIT_SUCCESS );
}
