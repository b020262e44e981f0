// Streams of a vendor's as queues, with the events, gates and scratch memory that they use.
//
// Thread rule: Flags and Scratch, any thread; a queue, an event and a gate, one thread at a time.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/device/gpu/failure.h"
#include "lib/device/gpu/registrations.h"

namespace hetccl::device::gpu {

// Words that streams wait on. A word's value only grows, so it serves its next gate as soon as the
// last one is open, whether or not the stream has noticed yet.
class Flags {
 public:
  struct Flag {
    uint32_t* word;
    uint32_t value;  // the gate's
  };
  // Makes the first words. Done early, since pinning memory may wait for the device, and so for
  // gates that nobody but the waiting thread would open.
  vendor::Error prepare();
  // Its value is greater than all before it.
  vendor::Error take(Flag* flag);
  void give_back(Flag flag);

 private:
  vendor::Error grow();

  std::mutex mutex_;
  std::vector<Flag> free_;
};

// Device memory for one launch at a time. Kept: allocating and freeing may wait for the device.
class Scratch {
 public:
  // Calls `launch` with memory that nothing else uses until what it gives to `stream` has run.
  template <typename F>
  vendor::Error with(size_t bytes, vendor::Stream stream, F launch) {
    const std::lock_guard lock(mutex_);
    Piece* piece = nullptr;
    vendor::Error error = find(bytes, &piece);
    if (error == GPU(Success)) error = launch(piece->memory);
    if (error == GPU(Success)) error = GPU(EventRecord)(piece->last_use, stream);
    return error;
  }

 private:
  struct Piece {
    void* memory;
    size_t bytes;
    vendor::RawEvent last_use;
  };
  vendor::Error find(size_t bytes, Piece** piece);

  std::mutex mutex_;
  std::vector<Piece> pieces_;
};

class GpuEvent final : public Event {
 public:
  static Result<std::unique_ptr<Event>> make(int ordinal);
  ~GpuEvent() override;
  int ordinal() const { return ordinal_; }
  vendor::RawEvent raw() const { return event_; }

 private:
  GpuEvent(int ordinal, vendor::RawEvent event) : ordinal_(ordinal), event_(event) {}
  const int ordinal_;
  const vendor::RawEvent event_;
};

// What the queues of one device share; it outlives them.
struct QueueParts {
  int ordinal;
  bool gates;
  const std::atomic<int>* max_blocks;
  Registrations* registrations;
  Flags flags;
  Scratch scratch;
};

class GpuQueue final : public Queue {
 public:
  static Result<std::unique_ptr<Queue>> make(QueueParts* parts);
  // A stream of the user's.
  GpuQueue(QueueParts* parts, vendor::Stream stream, bool own)
      : parts_(*parts), stream_(stream), own_(own) {}
  ~GpuQueue() override;

  Status copy(void* destination, const void* source, size_t bytes) override;
  Status combine(const Reduction& reduction, const Combine& what) override;
  Status record(Event* event) override;
  Status wait(const Event& event) override;
  Result<std::unique_ptr<Gate>> hold() override;
  Result<bool> idle() override;
  Status synchronize() override;

 private:
  QueueParts& parts_;
  const vendor::Stream stream_;
  const bool own_;
};

}  // namespace hetccl::device::gpu
