// The short way of a call: of the same shape as one of the last ones, between ranks of one node
// that share memory, on plain buffers. Whatever else there is to see to takes the long way, in
// communicator.cc.
#include "lib/base/hash.h"
#include "lib/communicator.h"

namespace hetccl {

Status Communicator::call(const Call& call) {
  {
    std::lock_guard lock(mutex_);
    if (queued_.load(std::memory_order_acquire) == 0) {
      if (const CachedProgram* program = ready_made(call)) return run_ready_made(call, *program);
    }
  }
  return call_prepared(call);
}

// The program of a call that prepare() and begin() would find nothing to do or to refuse in: the
// same as one of the last ones, between ranks of one node, on buffers of the host that are plainly
// apart or the same.
const CachedProgram* Communicator::ready_made(const Call& call) {
  const CachedProgram* const program = cache_.latest(call);
  if (program == nullptr || !program->ready_made || finalized_ ||
      failed_.load(std::memory_order_acquire) || device::any_loaded()) {
    return nullptr;
  }
  const auto send = reinterpret_cast<uintptr_t>(call.send);
  const auto recv = reinterpret_cast<uintptr_t>(call.recv);
  const Extents& e = program->extents;
  const bool sound = send + e.send_bytes <= recv || recv + e.recv_bytes <= send ||
                     (send == recv && !coll::block_per_rank(call.collective));
  const bool there =
      (call.send != nullptr || e.send_bytes == 0) && (call.recv != nullptr || e.recv_bytes == 0);
  return sound && there ? program : nullptr;
}

// The books are kept while the first messages are on their way.
Status Communicator::run_ready_made(const Call& call, const CachedProgram& program) {
  const uint64_t sequence = ++sequence_;
  const uint64_t signature = settings_.check ? hash_mix(program.hash, sequence) | 1 : 0;
  execution_->start(program.program,
                    {static_cast<const std::byte*>(call.send), static_cast<std::byte*>(call.recv)},
                    signature);
  history_.add(sequence, program);
  last_algorithm_.store(program.algorithm->name, std::memory_order_relaxed);
  current_sequence_ = sequence;
  current_signature_ = signature;
  current_ = &program;
  with_device_ = false;
  phase_ = Phase::kRunning;
  begun_ = program.extents.total_elements;
  executing_ = execution_.get();
  over_ = host_lane_;
  idle_rounds_ = 0;
  next_comparison_s_ = 1;
  if (execution_->poll() == run::Execution::Outcome::kDone) [[likely]]
    return {};
  return finish();
}

}  // namespace hetccl
