// Packs numbers and strings into a string for the exchange between ranks, and takes them out again
// with every length checked. Both ends run on one architecture (little-endian, checked at meeting).
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace hetccl {

class Packer {
 public:
  template <typename T>
  requires std::is_trivially_copyable_v<T> Packer& put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Packer& put(std::string_view text) {
    put<uint64_t>(text.size());
    bytes_.append(text);
    return *this;
  }
  std::string take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// A read past the end makes ok() false and yields zeros, so a reader checks once, at the end.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value{};
    if (rest_.size() < sizeof value) {
      fail();
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string get_string() {
    const auto size = get<uint64_t>();
    if (size > rest_.size()) {
      fail();
      return {};
    }
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  bool ok() const { return ok_; }
  bool finished() const { return ok_ && rest_.empty(); }

 private:
  void fail() {
    ok_ = false;
    rest_ = {};
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace hetccl
