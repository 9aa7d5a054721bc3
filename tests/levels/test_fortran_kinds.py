"""FTI_Protect in Fortran: one name for every intrinsic kind and rank, each byte of each variable back after a kill."""

from __future__ import annotations

import itertools
from pathlib import Path

import launch
import pytest

from metamori.levels.api.build_fortran import KINDS, RANKS

FRAME = """program kinds
  use fti
  use iso_c_binding
  implicit none
  include 'mpif.h'
  interface
    subroutine c_exit(status) bind(C, name='_exit')
      import
      integer(c_int), value :: status
    end subroutine
  end interface
  integer :: comm, err, status
DECLARED
  call MPI_Init(err)
  comm = MPI_COMM_WORLD
  call FTI_Init('config.fti', comm, err)
  call FTI_Status(status)
PROTECTED
  if (status == 0) then
    call FTI_Checkpoint(1, 2, err)
    if (err /= FTI_DONE) call c_exit(8)
    call MPI_Barrier(comm, err)
    call c_exit(9)
  end if
  call FTI_Recover(err)
  if (err /= FTI_SCES) call c_exit(8)
CHECKED
  call FTI_Finalize(err)
  call MPI_Finalize(err)
contains
  subroutine fill(id, place, bytes)
    integer, intent(in) :: id, bytes
    type(c_ptr), intent(in) :: place
    integer(1), pointer :: raw(:)
    integer :: i
    call c_f_pointer(place, raw, [bytes])
    do i = 1, bytes
      raw(i) = 0_1
      if (status == 0) raw(i) = int(mod(id * 31 + i * 7, 127), 1)
    end do
  end subroutine
  subroutine check(id, place, bytes)
    integer, intent(in) :: id, bytes
    type(c_ptr), intent(in) :: place
    integer(1), pointer :: raw(:)
    integer :: i
    call c_f_pointer(place, raw, [bytes])
    do i = 1, bytes
      if (raw(i) /= int(mod(id * 31 + i * 7, 127), 1)) then
        print *, 'wrong', id, i
        call c_exit(7)
      end if
    end do
  end subroutine
end program
"""


def written(path: Path) -> None:
    declared, protected, checked = [], [], []
    for number, ((kind, short, _), rank) in enumerate(itertools.product(KINDS, RANKS)):
        name, shape = f"{short}_{rank}", "(" + ",".join(":" * rank) + ")" if rank else ""
        room = "(" + ",".join("2" * rank) + ")" if rank else ""
        first = "(" + ",".join("1" * rank) + ")" if rank else ""
        bytes_ = f"{2 ** rank} * int(storage_size({name})) / 8"
        declared.append(f"  {kind.replace('(*)', '(5)')}, pointer :: {name}{shape}")
        protected += [f"  allocate({name}{room})", f"  call fill({number}, c_loc({name}{first}), {bytes_})",
                      f"  call FTI_Protect({number}, {name}, err)", "  if (err /= FTI_SCES) call c_exit(6)"]
        checked.append(f"  call check({number}, c_loc({name}{first}), {bytes_})")
    text = FRAME
    for word, lines in (("DECLARED", declared), ("PROTECTED", protected), ("CHECKED", checked)):
        text = text.replace(word, "\n".join(lines))
    path.write_text(text)


def test_every_kind_and_rank_comes_back(tmp_path):
    launch.need("openmpi")
    if not (launch.ROOT / "metamori" / "libmetamori_fti_f90.so").exists():
        pytest.skip("the Fortran module is not built: gfortran is missing")
    source, program = tmp_path / "kinds.f90", tmp_path / "kinds"
    written(source)
    launch.run(tmp_path, "mpif90.openmpi", "-O0", *launch.flags("--cflags"), str(source), "-o", str(program),
               *launch.flags("--fortran", "--libs"))
    launch.configure(tmp_path, group_size=2)
    words = launch.command("openmpi", 2, program)
    launch.run(tmp_path, *words, well=False)
    assert launch.setting(tmp_path, "failure") == "1" and launch.taken(tmp_path) == 1
    done = launch.run(tmp_path, *words)
    assert "wrong" not in done.stdout and launch.setting(tmp_path, "failure") == "0"
