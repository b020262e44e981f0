// What an MPI communicator carries of ours, as an attribute: who takes its collectives, and our own
// communicator once there is one.
//
// All that a rank decides by is equal on all of them: at the first collective on a communicator the
// ranks exchange their settings, and rank 0's hold. Our communicator is made at the first call that
// is ours. Both wait for all ranks, which MPI allows blocking collectives only: ranks may start
// non-blocking ones on several communicators in different orders. Thread rule: as MPI's, one
// collective of a communicator at a time.
#pragma once

#include <hetccl/hetccl.h>
#include <mpi.h>

#include <atomic>
#include <string>

#include "lib/base/status.h"

namespace hetccl::mpi {

class Channel {
 public:
  enum class Mode : char { kOff, kAuto, kAll };

  // Collective at a communicator's first call, and blocking. NULL where no channel could be made,
  // MPI is not running, or `comm` is null.
  static Channel* of(MPI_Comm comm);
  // NULL where there is none yet.
  static Channel* find(MPI_Comm comm);
  // Before MPI ends, collective: destroys all of our communicators, and ends the taking over.
  static void end_all();

  bool is_ours() const { return ours_; }
  const char* why_not() const { return why_not_; }
  Mode mode() const { return mode_; }
  // Whether a rank's process may hold memory of a device, which MPI may not be able to read.
  bool devices() const { return devices_; }
  MPI_Comm mpi() const { return mpi_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  // Non-blocking calls that have not ended; the channel outlives them.
  std::atomic<int>& open_calls() { return open_calls_; }

  bool has_comm() const { return comm_ != nullptr; }
  // Collective at its first call, and blocking. NULL: it could not be made on all ranks, and never
  // will.
  hetcclComm_t comm();

  // Hands an error of ours to the communicator's error handler; returns what the call returns.
  int raise(hetcclResult_t result, const std::string& text) const;

 private:
  explicit Channel(MPI_Comm comm) : mpi_(comm) {}
  void agree();
  void make();
  void destroy();
  static int on_free(MPI_Comm comm, int keyval, void* value, void* extra);
  static int keyval();

  MPI_Comm const mpi_;
  int rank_ = 0, size_ = 0;
  bool ours_ = false;
  const char* why_not_ = "";
  Mode mode_ = Mode::kOff;
  bool devices_ = false;
  hetcclComm_t comm_ = nullptr;
  std::atomic<int> open_calls_{0};
};

// While it lives, what MPI does on this thread is its own affair: collectives that it makes itself
// or a callback makes go straight to it.
class Inside {
 public:
  Inside() { ++depth; }
  ~Inside() { --depth; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  static bool now() { return depth > 0; }

 private:
  static thread_local int depth;
};

}  // namespace hetccl::mpi
