// What groups need of a communicator.
#include "lib/communicator.h"
#include "lib/stream_call.h"

namespace hetccl {

Result<device::Accelerator*> Communicator::check(const Call& call) {
  if (Status s = usable(); !s.ok()) return s;
  std::unique_lock lock(mutex_, std::defer_lock);
  if (call.reduces() && !is_builtin(call.op)) lock.lock();  // for operators_
  const Result<Extents> extents = check_arguments(call, ranks(), rank_, operators_);
  if (!extents.ok()) return extents.status();
  if (Status s = check_buffers(call, ranks(), rank_, *extents); !s.ok()) return s;
  if (!device::any_loaded()) return static_cast<device::Accelerator*>(nullptr);
  const Result<Where> where = locate(call, *extents);
  if (!where.ok()) return where.status();
  return where->any();
}

Result<device::Accelerator*> Communicator::check(const Group::Message& m) {
  const std::string name = m.sends ? "send" : "recv";
  if (Status s = usable(); !s.ok()) return s;
  if (!is_valid(m.type)) {
    return invalid_argument(name + ": " + std::to_string(m.type) + " is no data type");
  }
  if (m.peer < 0 || m.peer >= ranks()) {
    return invalid_argument(name + ": peer " + std::to_string(m.peer) + " is not one of 0 to " +
                            std::to_string(ranks() - 1));
  }
  constexpr size_t kMostBytes = size_t{1} << 63;
  size_t bytes;
  if (__builtin_mul_overflow(m.count, size_of(m.type), &bytes) || bytes > kMostBytes) {
    return invalid_argument(name + ": the count makes more than 2^63 bytes");
  }
  const char* const buffer = m.sends ? "sendbuff" : "recvbuff";
  if (m.memory == nullptr && bytes != 0) {
    return invalid_argument(name + ": " + buffer + " is NULL and the count is not 0");
  }
  if (!device::any_loaded()) return static_cast<device::Accelerator*>(nullptr);
  return locate(name, buffer, m.memory, bytes);
}

Result<std::unique_ptr<StreamCall>> Communicator::queue_call(const Call& call) {
  Prepared prepared;
  if (Status s = prepare(call, true, &prepared); !s.ok()) return s;
  auto made = std::make_unique<StreamCall>(this, std::move(prepared), nullptr);
  take_place(made.get());
  return made;
}

Result<NativeTurn> Communicator::take_turn(device::Accelerator* buffers,
                                           hetcclStream_t stream) const {
  device::Accelerator* const accelerator = accelerator_ != nullptr ? accelerator_ : buffers;
  if (accelerator == nullptr) {
    return invalid_argument(
        "the stream was not made by hetcclStreamCreate, and neither the communicator nor the "
        "buffers have a device whose stream it could be");
  }
  return NativeTurn::take(accelerator, stream);
}

}  // namespace hetccl
