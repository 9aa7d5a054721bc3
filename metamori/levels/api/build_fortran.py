"""Writes fti.f90, the Fortran module FTI: one FTI_Protect and FTI_Realloc per intrinsic kind and rank, under one name.

The module calls the C library by iso_c_binding and knows no MPI: a communicator is an integer in Fortran.
"""

from __future__ import annotations

import itertools

# Fortran declaration, short name, FTI type number (-n: opaque, of n bytes)
KINDS = [("integer(1)", "i1", 0), ("integer(2)", "i2", 1), ("integer(4)", "i4", 2), ("integer(8)", "i8", 3),
         ("real(4)", "r4", 8), ("real(8)", "r8", 9), ("real(16)", "r16", 10),
         ("complex(4)", "c4", -8), ("complex(8)", "c8", -16), ("complex(16)", "c16", -32),
         ("logical(1)", "l1", 0), ("logical(2)", "l2", 1), ("logical(4)", "l4", 2), ("logical(8)", "l8", 3),
         ("character(*)", "ch", 0)]
RANKS = range(8)

HEAD = """! fti.f90 - module FTI, FTI's Fortran interface served by Metamori's levels.  Written by build_fortran.py.
module FTI
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer, parameter, public :: FTI_BUFS = 256, FTI_DONE = 1, FTI_SCES = 0, FTI_NSCS = -1, FTI_NREC = -2, FTI_HEAD = 2
  integer, parameter, public :: FTI_SI_FAIL = 4, FTI_SI_SCES = 3, FTI_SI_ACTV = 2, FTI_SI_PEND = 1, FTI_SI_NINI = 0
  integer, parameter, public :: FTI_L1_DCP = 5, FTI_L2_DCP = 6, FTI_L3_DCP = 7, FTI_L4_DCP = 8

  type, public, bind(C) :: FTI_Type
    integer(c_int) :: id = -1
  end type

  public :: FTI_Init, FTI_InitType, FTI_Protect, FTI_Realloc, FTI_GetStoredSize, FTI_Checkpoint, FTI_Status
  public :: FTI_Recover, FTI_Snapshot, FTI_Finalize, FTI_RecoverVarInit, FTI_RecoverVar, FTI_RecoverVarFinalize
  public :: FTI_InitICP, FTI_AddVarICP, FTI_FinalizeICP, FTI_SendFile, FTI_GetStageDir, FTI_GetStageStatus
  public :: FTIM_Index, FTIM_RecoverIndex

  interface
    integer(c_int) function c_init(config, comm, mpi, new) bind(C, name="fti_init_")
      import; character(kind=c_char), intent(in) :: config(*)
      integer(c_int), value :: comm; type(c_ptr), value :: mpi; integer(c_int), intent(out) :: new
    end function
    integer(c_int) function c_init_type(kind, bytes) bind(C, name="FTI_InitType")
      import; integer(c_int), intent(inout) :: kind; integer(c_int), value :: bytes
    end function
    integer(c_int) function c_protect(id, ptr, count, kind) bind(C, name="FTI_Protect")
      import; integer(c_int), value :: id, kind; type(c_ptr), value :: ptr; integer(c_long), value :: count
    end function
    type(c_ptr) function c_realloc(id, ptr) bind(C, name="FTI_Realloc")
      import; integer(c_int), value :: id; type(c_ptr), value :: ptr
    end function
    integer(c_long) function c_stored(id) bind(C, name="FTI_GetStoredSize")
      import; integer(c_int), value :: id
    end function
    integer(c_int) function c_checkpoint(id, level) bind(C, name="FTI_Checkpoint")
      import; integer(c_int), value :: id, level
    end function
    integer(c_int) function c_send(local, remote) bind(C, name="FTI_SendFile")
      import; character(kind=c_char), intent(in) :: local(*), remote(*)
    end function
    integer(c_int) function c_stage_dir(into, room) bind(C, name="FTI_GetStageDir")
      import; character(kind=c_char), intent(out) :: into(*); integer(c_int), value :: room
    end function
    integer(c_int) function c_icp(id, level, activate) bind(C, name="FTI_InitICP")
      import; integer(c_int), value :: id, level; logical(c_bool), value :: activate
    end function
    subroutine c_exit(status) bind(C, name="exit")
      import; integer(c_int), value :: status
    end subroutine
NONE_AND_ONE
  end interface

  interface FTI_GetStoredSize
    module procedure stored_4, stored_8
  end interface
GENERIC

contains

  subroutine FTI_Init(config_file, global_comm, err)
    character(*), intent(in) :: config_file
    integer, intent(inout) :: global_comm
    integer, intent(out) :: err
    integer(c_int) :: new
    new = 0
    err = c_init(trim(config_file) // c_null_char, int(global_comm, c_int), c_null_ptr, new)
    if (err == 995) call c_exit(0_c_int)       ! a head, and the execution is over
    if (new /= 0) global_comm = new
  end subroutine

  subroutine FTI_InitType(type_F, size_F, err)
    type(FTI_Type), intent(inout) :: type_F
    integer, intent(in) :: size_F
    integer, intent(out) :: err
    err = c_init_type(type_F%id, int(size_F, c_int))
  end subroutine

  subroutine stored_4(id_F, size_F)
    integer, intent(in) :: id_F
    integer(4), intent(out) :: size_F
    size_F = int(c_stored(int(id_F, c_int)), 4)
  end subroutine

  subroutine stored_8(id_F, size_F)
    integer, intent(in) :: id_F
    integer(8), intent(out) :: size_F
    size_F = c_stored(int(id_F, c_int))
  end subroutine

  subroutine FTI_Checkpoint(id_F, level, err)
    integer, intent(in) :: id_F, level
    integer, intent(out) :: err
    err = c_checkpoint(int(id_F, c_int), int(level, c_int))
  end subroutine

  subroutine FTI_InitICP(id_F, level, activate, err)
    integer, intent(in) :: id_F, level
    logical, intent(in) :: activate
    integer, intent(out) :: err
    err = c_icp(int(id_F, c_int), int(level, c_int), logical(activate, c_bool))
  end subroutine

  subroutine FTI_SendFile(lpath, rpath, id)
    character(*), intent(in) :: lpath, rpath
    integer, intent(out) :: id
    id = c_send(trim(lpath) // c_null_char, trim(rpath) // c_null_char)
  end subroutine

  subroutine FTI_GetStageDir(stage_dir, err)
    character(*), intent(out) :: stage_dir
    integer, intent(out) :: err
    character(kind=c_char) :: name(4096)
    integer :: i
    stage_dir = ' '
    err = c_stage_dir(name, 4096_c_int)
    if (err /= FTI_SCES) return
    do i = 1, len(stage_dir)
      if (name(i) == c_null_char) exit
      stage_dir(i:i) = name(i)
    end do
  end subroutine

  ! derived types: the program says how many elements of which type
  subroutine protect_derived(id, data_ptr, count_F, type_F, err)
    integer, intent(in) :: id, count_F
    type(c_ptr), intent(in) :: data_ptr
    type(FTI_Type), intent(in) :: type_F
    integer, intent(out) :: err
    err = c_protect(int(id, c_int), data_ptr, int(count_F, c_long), type_F%id)
  end subroutine

  subroutine realloc_derived(id, data_ptr, err)
    integer, intent(in) :: id
    type(c_ptr), intent(inout) :: data_ptr
    integer, intent(out) :: err
    type(c_ptr) :: fresh
    err = FTI_NSCS
    fresh = c_realloc(int(id, c_int), data_ptr)
    if (.not. c_associated(fresh)) return
    data_ptr = fresh
    err = FTI_SCES
  end subroutine

  integer(c_int) function opaque(bytes)        ! the FTI type of complex numbers
    integer, intent(in) :: bytes
    integer(c_int), save :: kinds(32) = -1
    integer :: err
    if (kinds(bytes) < 0) err = c_init_type(kinds(bytes), int(bytes, c_int))
    opaque = kinds(bytes)
  end function
"""

NONE = {"FTI_Recover": 0, "FTI_Snapshot": 0, "FTI_Finalize": 0, "FTI_RecoverVarInit": 0, "FTI_RecoverVarFinalize": 0,
        "FTI_FinalizeICP": 0, "FTI_Status": 0, "FTIM_Index": 0,
        "FTI_RecoverVar": 1, "FTI_AddVarICP": 1, "FTI_GetStageStatus": 1, "FTIM_RecoverIndex": 1}


def _plain(name: str, arguments: int) -> str:
    """A function of no or one integer, as a subroutine with its result last."""
    if arguments:
        return (f"\n  subroutine {name}(id, err)\n    integer, intent(in) :: id\n    integer, intent(out) :: err\n"
                f"    err = c_{name}(int(id, c_int))\n  end subroutine\n")
    return f"\n  subroutine {name}(err)\n    integer, intent(out) :: err\n    err = c_{name}()\n  end subroutine\n"


def _declared(name: str, arguments: int) -> str:
    head = f"    integer(c_int) function c_{name}({'id' if arguments else ''}) bind(C, name=\"{name}\")\n      import"
    return head + ("; integer(c_int), value :: id" if arguments else "") + "\n    end function"


def _protect(kind: str, short: str, number: int, rank: int) -> str:
    shape = "(" + ",".join(":" * rank) + ")" if rank else ""
    count = "size(data, kind=c_long)" if rank else "1_c_long"
    if short == "ch":
        count += " * len(data)"
    fti = f"{number}_c_int" if number >= 0 else f"opaque({-number})"
    ready = (f"    if (size(data) == 0) then\n      err = c_protect(int(id, c_int), c_null_ptr, 0_c_long, {fti})\n"
             "      return\n    end if\n    err = FTI_NSCS\n    if (.not. is_contiguous(data)) return\n"
             if rank else "")
    first = "(" + ",".join(f"lbound(data,{i})" for i in range(1, rank + 1)) + ")" if rank else ""
    return (f"\n  subroutine protect_{short}_{rank}(id, data, err)\n    integer, intent(in) :: id\n"
            f"    {kind}, pointer, intent(in) :: data{shape}\n    integer, intent(out) :: err\n{ready}"
            f"    err = c_protect(int(id, c_int), c_loc(data{first}), {count}, {fti})\n  end subroutine\n")


def _realloc(kind: str, short: str, rank: int) -> str:
    """The last dimension takes the size that the checkpoint has; the others stay."""
    shape = "(" + ",".join(":" * rank) + ")"
    first = "(" + ",".join(f"lbound(data,{i})" for i in range(1, rank + 1)) + ")"
    return (f"\n  subroutine realloc_{short}_{rank}(id, data, err)\n    integer, intent(in) :: id\n"
            f"    {kind}, pointer, intent(inout) :: data{shape}\n    integer, intent(out) :: err\n"
            f"    type(c_ptr) :: old, fresh\n    integer(8) :: bytes, row\n    integer :: extent({rank})\n"
            "    err = FTI_NSCS\n    bytes = c_stored(int(id, c_int))\n"
            "    extent = shape(data)\n    old = c_null_ptr\n"
            f"    if (size(data) > 0) old = c_loc(data{first})\n"
            f"    row = product(int(extent(1:{rank - 1}), 8)) * (storage_size(data) / 8)\n"
            "    if (row == 0 .or. bytes == 0) return\n    if (mod(bytes, row) /= 0) return\n"
            "    fresh = c_realloc(int(id, c_int), old)\n    if (.not. c_associated(fresh)) return\n"
            f"    extent({rank}) = int(bytes / row)\n    call c_f_pointer(fresh, data, extent)\n    err = FTI_SCES\n"
            "  end subroutine\n")


def emit(path: str) -> None:
    """Write the module's source."""
    protects = [f"protect_{short}_{rank}" for (_, short, _), rank in itertools.product(KINDS, RANKS)]
    numbers = [each for each in KINDS if each[1] != "ch"]
    reallocs = [f"realloc_{short}_{rank}" for (_, short, _), rank in itertools.product(numbers, RANKS) if rank]
    generic = ["", "  interface FTI_Protect", *(f"    module procedure {name}" for name in protects),
               "    module procedure protect_derived", "  end interface", "  interface FTI_Realloc",
               *(f"    module procedure {name}" for name in reallocs), "    module procedure realloc_derived",
               "  end interface"]
    text = HEAD.replace("NONE_AND_ONE", "\n".join(_declared(name, count) for name, count in NONE.items()))
    text = text.replace("GENERIC", "\n".join(generic))
    text += "".join(_plain(name, count) for name, count in NONE.items())
    text += "".join(_protect(*kind, rank) for kind, rank in itertools.product(KINDS, RANKS))
    text += "".join(_realloc(kind, short, rank) for kind, short, _ in numbers for rank in RANKS if rank)
    with open(path, "w") as file:
        file.write(text + "end module FTI\n")
