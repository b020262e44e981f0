// A user's program in C++17, built against the installed copy: the wrappers of hetccl.hpp.
#include <hetccl/mpi.h>
#include <hetccl/hetccl.hpp>

#include <complex>
#include <cstdio>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace {

void expect(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

static_assert(hetccl::data_type<float> == hetcclFloat32);
static_assert(hetccl::data_type<const double> == hetcclFloat64);
static_assert(hetccl::data_type<long long> == hetcclInt64);
static_assert(hetccl::data_type<unsigned short> == hetcclUint16);
static_assert(hetccl::data_type<bool> == hetcclBool);
static_assert(hetccl::data_type<std::byte> == hetcclByte);
static_assert(hetccl::data_type<std::complex<double>> == hetcclComplex128);
static_assert(!std::is_copy_constructible_v<hetccl::Communicator>);
static_assert(std::is_nothrow_move_constructible_v<hetccl::Communicator>);
static_assert(std::is_nothrow_move_assignable_v<hetccl::Stream>);

void gather(const void* mine, void* all, std::size_t bytes) {
  MPI_Allgather(mine, static_cast<int>(bytes), MPI_BYTE, all, static_cast<int>(bytes), MPI_BYTE,
                MPI_COMM_WORLD);
}

void collectives(const hetccl::Communicator& comm) {
  int n = comm.size(), rank = comm.rank();
  std::vector<double> mine(1000, rank + 1.0), sum(1000);
  comm.all_reduce(mine.data(), sum.data(), mine.size());
  for (double x : sum) expect(x == n * (n + 1) / 2.0, "all_reduce");

  hetccl::Memory<std::complex<float>> z(3);
  for (auto& x : z) x = {1, static_cast<float>(rank)};
  comm.all_reduce(z.data(), z.data(), z.size());
  for (auto& x : z) {
    expect(x == std::complex<float>(static_cast<float>(n), static_cast<float>(n * (n - 1) / 2)),
           "all_reduce of complex numbers, in place");
  }

  int root_value = 40 + rank, got = 0;
  comm.broadcast(&root_value, &got, 1, n - 1);
  expect(got == 40 + n - 1, "broadcast");
  std::vector<int> all(static_cast<size_t>(n));
  comm.all_gather(&rank, all.data(), 1);
  for (int r = 0; r < n; ++r) expect(all[static_cast<size_t>(r)] == r, "all_gather");
  std::vector<int> back(all.size());
  comm.all_to_all(all.data(), back.data(), 1);
  for (int x : back) expect(x == rank, "all_to_all");
  int least = -1;
  comm.reduce_scatter(all.data(), &least, 1, hetcclMin);
  expect(least == rank, "reduce_scatter");
  comm.reduce(&rank, &least, 1, hetcclMax, 0);
  if (rank == 0) expect(least == n - 1, "reduce");
  comm.barrier();
}

void rooted_and_prefixes(const hetccl::Communicator& comm) {
  int n = comm.size(), rank = comm.rank();
  const size_t ranks = static_cast<size_t>(n), me = static_cast<size_t>(rank);
  bool root = rank == 0;
  std::vector<int> all(root ? ranks : 0);
  comm.gather(&rank, all.data(), 1, 0);
  for (size_t r = 0; r < all.size(); ++r) expect(all[r] == static_cast<int>(r), "gather");
  int back = -1;
  comm.scatter(all.data(), &back, 1, 0);
  expect(back == rank, "scatter");

  int up_to = 0, below = -1;
  comm.scan(&rank, &up_to, 1);
  expect(up_to == rank * (rank + 1) / 2, "scan");
  comm.exscan(&rank, &below, 1);
  expect(below == (rank == 0 ? -1 : up_to - rank), "exscan");

  // Rank r has r + 1 elements for each rank.
  std::vector<size_t> given(ranks, me + 1), got(ranks), give_at(ranks), get_at(ranks);
  size_t total = 0;
  for (size_t r = 0; r < ranks; ++r) {
    give_at[r] = r * (me + 1);
    got[r] = r + 1;
    get_at[r] = total;
    total += r + 1;
  }
  std::vector<int> out(ranks * (me + 1), rank), in(total, -1);
  comm.all_to_allv(out.data(), given.data(), give_at.data(), in.data(), got.data(), get_at.data());
  for (size_t r = 0; r < ranks; ++r)
    expect(in[get_at[r] + r] == static_cast<int>(r), "all_to_allv");
  std::vector<int> collected(root ? total : 0), mine(me + 1, -1);
  comm.gatherv(out.data(), me + 1, collected.data(), got.data(), get_at.data(), 0);
  if (root) expect(collected == in, "gatherv");
  comm.scatterv(collected.data(), got.data(), get_at.data(), mine.data(), me + 1, 0);
  expect(mine == std::vector<int>(me + 1, rank), "scatterv");
}

void streams(const hetccl::Communicator& comm) {
  hetccl::Stream stream;
  std::vector<int> counter(100, 1);
  for (int i = 0; i < 3; ++i) {
    comm.all_reduce(counter.data(), counter.data(), counter.size(), hetcclSum, stream);
  }
  stream.synchronize();
  expect(stream.done(), "stream.done()");
  int n = comm.size();
  expect(counter[99] == n * n * n, "calls in a stream");
}

void errors(const hetccl::Communicator& comm) {
  try {
    int x = 0;
    comm.broadcast(&x, &x, 1, comm.size());
    expect(false, "a root out of range was accepted");
  } catch (const hetccl::Error& error) {
    expect(error.code() == hetcclInvalidArgument, "the code of the error");
    expect(std::string(error.what()).find("root") != std::string::npos, error.what());
  }
  expect(comm.async_error() == hetcclSuccess, "the communicator stays usable");
  struct Broken {};
  bool came_out = false;
  try {
    hetccl::Communicator::from_oob(1, 0, [](const void*, void*, std::size_t) { throw Broken(); });
  } catch (const Broken&) {
    came_out = true;
  }
  expect(came_out, "an exception of the caller's exchange comes out");
}

void handles(hetccl::Communicator comm) {
  hetccl::Communicator moved = std::move(comm);
  expect(moved && !comm, "move");  // NOLINT: looked at on purpose
  hetccl::Communicator own = moved.split(moved.rank(), 0);
  expect(own.size() == 1 && own.rank() == 0, "split");
  expect(!moved.split(-1, 0), "split without a color");
  hetccl::Communicator twin = moved.dup();
  expect(twin.size() == moved.size(), "dup");
  hetccl::Communicator adopted = hetccl::Communicator::adopt(twin.release());
  expect(!twin && adopted.rank() == moved.rank(), "release and adopt");
  adopted.barrier();
  adopted.finalize();
  adopted.destroy();
  expect(!adopted, "destroy");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int n = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int status = 0;
  try {
    hetccl::Communicator comm = hetccl::Communicator::from_oob(n, rank, gather);
    collectives(comm);
    rooted_and_prefixes(comm);
    streams(comm);
    errors(comm);
    hetcclUniqueId id{};
    if (rank == 0) id = hetccl::Communicator::unique_id();
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    collectives(hetccl::Communicator::from_unique_id(n, id, rank));
    handles(std::move(comm));
    std::printf("rank %d of %d ok\n", rank, n);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
