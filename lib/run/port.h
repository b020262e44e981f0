// One communicator's access to one accelerator: a queue for each direction of copies and one for
// reductions, so that they overlap, and the device memory in which messages wait to be reduced.
//
// As a device::Device it enqueues: copies and combines run in the order given, after it returns.
// What another queue does before or after is ordered by marks. Errors are kept, and what is given
// after one does nothing.
//
// Thread rule: one thread at a time, the one that holds the communicator.
#pragma once

#include <memory>
#include <vector>

#include "lib/base/status.h"
#include "lib/device/accelerator.h"

namespace hetccl::run {

class Port final : public device::Device {
 public:
  // `slot_bytes`: the largest message.
  static Result<std::unique_ptr<Port>> open(device::Accelerator* accelerator, size_t slot_bytes);
  ~Port() override;  // waits for the queues

  void copy(void* destination, const void* source, size_t bytes) override;
  void combine(const device::Reduction& reduction, const device::Combine& what) override;
  const char* description() const override { return description_.c_str(); }

  // A moment of a queue; null: the beginning of time.
  using Mark = std::shared_ptr<device::Event>;
  // After all copies and combines given so far.
  Mark mark();
  // What is given to copy() or combine() from now on runs after `mark`. Null: after what just came
  // from outside the queues, so that the next mark is a new one.
  void wait(const Mark& mark);
  bool passed(const Mark& mark);

  // One background copy on the queue of its direction, after `after`; the mark is its end.
  Mark copy_in(void* device, const void* host, size_t bytes, const Mark& after);
  struct Part {
    const void* device;
    size_t bytes;
  };
  Mark copy_out(void* host, const std::vector<Part>& parts, const Mark& after);

  // Device memory of slot_bytes. Null: there is none free and `grow` is false, or an error.
  std::byte* take_slot(bool grow, Mark* free_after);
  // It may be written again after all that was given to copy() and combine() so far.
  void give_slot(std::byte* slot);

  // Device memory for partial results, kept and grown. Null: see status().
  std::byte* work(size_t bytes) { return reserve(&work_, bytes); }
  std::byte* temp(size_t bytes) { return reserve(&temp_, bytes); }

  // True once everything given has run.
  bool idle();
  void synchronize();
  const Status& status() const { return status_; }
  device::Accelerator& accelerator() { return *accelerator_; }

 private:
  struct Slot {
    std::byte* memory;
    Mark free_after;
  };
  struct Scratch {
    std::byte* memory = nullptr;
    size_t bytes = 0;
  };
  // Outlives the port where a mark does.
  struct Events {
    std::vector<std::unique_ptr<device::Event>> free;
  };

  explicit Port(device::Accelerator* accelerator, size_t slot_bytes);
  bool check(const Status& status);  // keeps the first error; false: there is one
  Mark record(device::Queue* queue);
  std::byte* reserve(Scratch* scratch, size_t bytes);
  std::byte* allocate(size_t bytes);

  device::Accelerator* const accelerator_;
  const size_t slot_bytes_;
  const std::string description_;
  std::unique_ptr<device::Queue> in_, out_, compute_;
  const std::shared_ptr<Events> events_ = std::make_shared<Events>();
  Mark mark_;           // of compute_
  bool given_ = false;  // to compute_ since mark_
  std::vector<Slot> slots_;
  std::vector<void*> allocations_;
  Scratch work_, temp_;
  Status status_;
};

}  // namespace hetccl::run
