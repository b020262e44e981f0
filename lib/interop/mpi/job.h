// One call of ours on its way: the buffers as our library wants them, dense bytes, and what is left
// to do when it has ended. Blocks that are not dense are packed into memory of the job's own and
// unpacked at its end. One thread at a time.
#pragma once

#include <hetccl/hetccl.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/interop/mpi/channel.h"
#include "lib/interop/mpi/types.h"

namespace hetccl::mpi {

enum class Access { kRead, kWrite, kBoth };

// A buffer of the program's: `count` elements of `type` a block, or with lists count[i] elements at
// displs[i] extents.
struct Buffer {
  void* address = nullptr;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int64_t count = 0;  // without lists: of the whole buffer
  const int* counts = nullptr;
  const int* displs = nullptr;
};

// As our library takes it, in bytes. Blocks are there for lists only.
struct Dense {
  std::byte* address = nullptr;
  std::vector<size_t> counts, displs;
};

class Job {
 public:
  // `stream` is NULL where the caller waits.
  Job(Channel* channel, hetcclStream_t stream) : channel_(channel), stream_(stream) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  Channel& channel() { return *channel_; }
  hetcclComm_t comm() { return channel_->comm(); }
  hetcclStream_t stream() const { return stream_; }

  // nullptr: MPI could not pack it, which finish() then says.
  const Dense* prepare(const Buffer& buffer, Access access);
  // Memory of the job's own.
  std::byte* temporary(size_t bytes);
  // Lists that must outlive the call.
  std::vector<size_t>* list(size_t n);
  // At the end: the bytes at `from` go to `to`; of a pair type only values and indices.
  void copy_at_end(void* to, const void* from, size_t count, hetcclDataType_t type);

  // The call has ended with `result`: what is left to do is done. Returns what MPI's caller gets.
  int finish(hetcclResult_t result);

 private:
  struct Unpacking {
    Buffer buffer;
    Dense dense;
    bool own_type;
  };
  struct Copying {
    void* to;
    const void* from;
    size_t count;
    hetcclDataType_t type;
  };
  bool move_blocks(const Buffer& buffer, const Dense& dense, bool pack);
  bool move_block(void* address, int64_t count, MPI_Datatype type, std::byte* dense, bool pack);
  hetcclResult_t copy_back(const Copying& c);

  Channel* const channel_;
  hetcclStream_t const stream_;
  std::vector<std::unique_ptr<std::byte[]>> temporaries_;
  std::vector<std::unique_ptr<Dense>> prepared_;
  std::vector<std::unique_ptr<std::vector<size_t>>> lists_;
  std::vector<Unpacking> unpack_;
  std::vector<Copying> copy_;
  const char* trouble_ = nullptr;  // of this side, if our library was not asked
};

// Copies between memory of any kind; `devices`: it may be a device's. Any thread.
hetcclResult_t copy_memory(void* to, const void* from, size_t bytes, bool devices);

}  // namespace hetccl::mpi
