# needs: gfortran
set -e
cat > program.f90 <<'EOF'
program p
  integer :: i, n
  real(8) :: x(100)
  character(20) :: word
  open(10, file='text', status='replace')
  do i = 1, 500
    write(10, '(i6, f12.5)') i, i / 7d0
  end do
  flush(10)
  open(11, file='direct', access='direct', recl=800, form='unformatted', status='replace')
  do i = 1, 30
    x = i
    write(11, rec=i) x
  end do
  flush(11)
  open(12, file='stream', access='stream', form='unformatted', status='replace')
  write(12) (real(i, 8), i = 1, 1000)
  flush(12)
  call execute_command_line('mark')
  x = -1
  write(11, rec=7) x
  flush(11)
  write(12, pos=81) 1d0, 2d0
  flush(12)
  backspace(10)
  read(10, *) n
  print *, n
  rewind(10)
  read(10, *) n
  write(10, '(a)') 'cut off here'
  flush(10)
  call execute_command_line('mark')
  open(13, status='scratch')
  write(13, *) 'scratch'
  rewind(13)
  read(13, *) word
  print *, trim(word)
  read(11, rec=7) x
  print *, sum(x)
  close(12, status='delete')
  call execute_command_line('mark')
  open(10, file='text', status='old', position='append')
  write(10, '(a)') 'more'
end program
EOF
gfortran -O1 program.f90 -o program
./program
