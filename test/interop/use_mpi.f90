! In-place sums and their like through the binding of mpi: the interposer is given
! what Open MPI has converted to C.
program use_mpi
  use mpi
  implicit none
  integer, parameter :: n = 1000
  integer :: rank, ranks, ierr, i, total, copies(n)
  integer :: request(2)
  double precision :: sums(n)
  complex(kind(1d0)) :: z(4)
  real :: strided(7)
  logical :: all_true, some
  logical :: flags(2)
  integer :: gathered(64), mine(1)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  total = ranks * (ranks - 1) / 2

  ! in place: the marker is another address than C's
  copies = rank
  call MPI_Allreduce(MPI_IN_PLACE, copies, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  call expect(ierr == MPI_SUCCESS .and. all(copies == total))
  sums = 0.5d0 * rank
  call MPI_Allreduce(MPI_IN_PLACE, sums, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  call expect(all(sums == 0.5d0 * total))
  z = cmplx(rank, -rank, kind(1d0))
  call MPI_Allreduce(MPI_IN_PLACE, z, 4, MPI_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD, ierr)
  call expect(all(z == cmplx(total, -total, kind(1d0))))
  if (rank == 0) then
    copies = rank
    call MPI_Reduce(MPI_IN_PLACE, copies, n, MPI_INTEGER, MPI_MAX, 0, MPI_COMM_WORLD, ierr)
    call expect(all(copies == ranks - 1))
  else
    copies = rank
    call MPI_Reduce(copies, copies, n, MPI_INTEGER, MPI_MAX, 0, MPI_COMM_WORLD, ierr)
  end if

  ! logicals
  flags = (/ rank == 0, .true. /)
  call MPI_Allreduce(flags(1), some, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierr)
  call MPI_Allreduce(flags(1), all_true, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierr)
  call expect(some .and. .not. all_true)
  call MPI_Allreduce(flags(2), all_true, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierr)
  call expect(all_true)

  ! in place in the other forms
  gathered = -1
  gathered(rank + 1) = rank * 3
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, gathered, 1, MPI_INTEGER, &
                     MPI_COMM_WORLD, ierr)
  do i = 1, ranks
    call expect(gathered(i) == 3 * (i - 1))
  end do
  mine(1) = 7 * rank
  call MPI_Gather(mine, 1, MPI_INTEGER, gathered, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
  if (rank == 0) then
    do i = 1, ranks
      call expect(gathered(i) == 7 * (i - 1))
    end do
    call MPI_Scatter(gathered, 1, MPI_INTEGER, MPI_IN_PLACE, 1, MPI_INTEGER, 0, &
                     MPI_COMM_WORLD, ierr)
  else
    call MPI_Scatter(gathered, 1, MPI_INTEGER, mine, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    call expect(mine(1) == 7 * rank)
  end if

  ! a section with gaps
  strided = -1
  if (rank == ranks - 1) strided = (/ 1, 2, 3, 4, 5, 6, 7 /)
  call MPI_Bcast(strided(1:7:2), 4, MPI_REAL, ranks - 1, MPI_COMM_WORLD, ierr)
  call expect(all(strided(1:7:2) == (/ 1., 3., 5., 7. /)))
  if (rank < ranks - 1) call expect(all(strided(2:6:2) == -1.))

  ! non-blocking, without a status
  copies = rank
  call MPI_Iallreduce(MPI_IN_PLACE, copies, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request(1), &
                      ierr)
  call MPI_Ibarrier(MPI_COMM_WORLD, request(2), ierr)
  call MPI_Waitall(2, request, MPI_STATUSES_IGNORE, ierr)
  call expect(ierr == MPI_SUCCESS .and. all(copies == total))
  call expect(all(request == MPI_REQUEST_NULL))
  sums = rank
  call MPI_Iallreduce(MPI_IN_PLACE, sums, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, &
                      request(1), ierr)
  call MPI_Wait(request(1), MPI_STATUS_IGNORE, ierr)
  call expect(all(sums == total))

  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a)', 'fortran: ok'
  call MPI_Finalize(ierr)
contains
  subroutine expect(condition)
    logical, intent(in) :: condition
    if (condition) return
    print '(a,i0)', 'not ok: rank ', rank
    call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  end subroutine
end program
