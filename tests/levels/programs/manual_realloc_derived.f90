program test_fti_realloc
  use fti
  use iso_c_binding
  implicit none
  include 'mpif.h'

  !> DEFINE DERIVED TYPE
  type :: polar
    real :: radius
    real :: phi
  end type

  integer, parameter      :: dp=kind(1.0d0)
  integer, parameter      :: N1=128*1024*25  !> 25 MB / Process
  integer, parameter      :: N2=128*1024*50  !> 50 MB / Process
  integer, parameter      :: N11 = 128
  integer, parameter      :: N12 = 1024
  integer, parameter      :: N13 = 25
  integer, parameter      :: N21 = 128
  integer, parameter      :: N22 = 1024
  integer, parameter      :: N23 = 50
  integer, target         :: FTI_COMM_WORLD
  integer                 :: ierr, status
  type(FTI_type)          :: FTI_Polar

  type(c_ptr)             :: cPtr
  type(polar), dimension(:, :, :), pointer :: arr
  type(polar), dimension(:, :, :), pointer :: tmp
  integer(4), dimension(:), pointer       :: shape

  !> INITIALIZE FTI TYPE 'FTI_POLAR'
  call FTI_InitType(FTI_Polar, 2*4, ierr)

  allocate(arr(N11,N12,N13))
  allocate(shape(3))

  !> INITIALIZE MPI AND FTI
  call MPI_Init(ierr)
  FTI_COMM_WORLD = MPI_COMM_WORLD
  call FTI_Init('config.fti', FTI_COMM_WORLD, ierr)

  !> PROTECT DATA AND ITS SHAPE
  call FTI_Protect(0, c_loc(arr), size(arr), FTI_Polar, ierr)
  call FTI_Protect(1, shape, ierr)

  call FTI_Status(status)

  !> EXECUTE ON RESTART
  if ( status .eq. 1 ) then
    !> REALLOCATE TO DIMENSION AT LAST CHECKPOINT
    cPtr = c_loc(arr)
    call FTI_Realloc(0, cPtr, ierr) !> PASS DATA AS C-POINTER
    call FTI_recover(ierr)
    call c_f_pointer(cPtr, arr, shape) !> CAST BACK TO F-POINTER
    call FTI_Finalize(ierr)
    call MPI_Finalize(ierr)
    STOP
  end if

  !> FIRST CHECKPOINT
  call FTI_Checkpoint(1, 1, ierr)

  !> CHANGE ARRAY DIMENSION
  !> AND STORE IN SHAPE ARRAY
  shape = [N21, N22, N23]
  allocate(tmp(N21, N22, N23))
  tmp(1:N11, 1:N12, 1:N13) = arr
  deallocate(arr)
  arr => tmp
!> TELL FTI ABOUT THE NEW DIMENSION
call FTI_Protect(0, c_loc(arr), size(arr), FTI_Polar, ierr)

!> SECOND CHECKPOINT
call FTI_Checkpoint(2,1, ierr)

!> SIMULATE CRASH
call MPI_Abort(MPI_COMM_WORLD, -1, ierr)
end program
