! Jacobi iteration; the residual goes to a file and to standard output.
program heat
  implicit none
  integer, parameter :: n = 400, steps = 900
  real(8), allocatable :: a(:, :), b(:, :)
  real(8) :: r
  integer :: step, i, j
  allocate(a(n, n), b(n, n))
  a = 0; a(1, :) = 1; a(:, n) = 2; b = a
  open(10, file='residual', status='replace')
  do step = 1, steps
    r = 0
    do j = 2, n - 1
      do i = 2, n - 1
        b(i, j) = 0.25d0 * (a(i - 1, j) + a(i + 1, j) + a(i, j - 1) + a(i, j + 1))
        r = max(r, abs(b(i, j) - a(i, j)))
      end do
    end do
    a(2:n-1, 2:n-1) = b(2:n-1, 2:n-1)
    if (mod(step, 10) == 0) write(10, '(i6, es24.16)') step, r
    if (mod(step, 50) == 0) print '(i6, es24.16)', step, sum(a)
  end do
  close(10)
end program heat
