// Memory that grows and is kept, for partial results. Its contents do not survive growth.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace hetccl {

class Scratch {
 public:
  // nullptr: out of memory.
  std::byte* reserve(size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      const size_t rounded = (bytes + 4095) / 4096 * 4096;
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, rounded)));
      if (memory_) size_ = rounded;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t size_ = 0;
};

}  // namespace hetccl
