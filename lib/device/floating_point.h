// Programs may run with denormals flushed, another rounding direction or trapping exceptions; a
// reduction must not. While this object lives, its thread computes in the default mode.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace hetccl::device {

class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() : before_(get()) {
    if (differs()) set(kDefault);
  }
  ~DefaultFloatingPoint() {
    if (differs()) set(before_);
  }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
#if defined(__SSE2__)
  using Mode = uint32_t;
  static constexpr Mode kDefault = 0x1f80;  // nearest, no flushing, exceptions masked
  static constexpr Mode kSticky = 0x3f;     // what happened so far: no part of the mode
  static Mode get() { return _mm_getcsr(); }
  static void set(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = uint64_t;
  static constexpr Mode kDefault = 0;
  static constexpr Mode kSticky = 0;
  static Mode get() {
    Mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set(Mode mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#else
  using Mode = uint32_t;
  static constexpr Mode kDefault = 0;
  static constexpr Mode kSticky = 0;
  static Mode get() { return kDefault; }
  static void set(Mode) {}
#endif
  bool differs() const { return (before_ & ~kSticky) != kDefault; }

  const Mode before_;
};

}  // namespace hetccl::device
