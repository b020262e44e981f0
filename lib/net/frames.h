// Messages of the control plane on a byte stream: a fixed header, then a bounded payload. The
// parser takes bytes as they come and never trusts them: it stores what arrived, not what was
// announced, and stops for good at the first header that is out of bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace hetccl::net {

enum class FrameType : uint8_t {
  kHello = 1,  // link: who connects, and the key of whom it wants
  kSync,       // link: state of all ranks; the first frame after the hello, both ways
  kState,      // link: news of one rank
  kHeard,      // to one that has departed: a rank that stays knows of it
  kPart,       // a member's share of an allgather, to member 0
  kTable,      // all shares, from member 0
  kMissing,    // who has not arrived? and the answer
  kFailure,    // a group is at its end
  kCompare,    // asks the coordinator to compare a call
  kAsk,        // the coordinator asks a member
  kAnswer,     // and its argument list
  kJoin,       // meeting: a rank's record
  kMet,        // meeting: the table
  kRefused,    // meeting: why there is none
  kLast = kRefused
};

inline constexpr int kToLink = -1;  // for whoever is at the other end
inline constexpr int kToEverybody = -2;
inline constexpr size_t kFrameHeaderBytes = 16;
inline constexpr size_t kMaxPayload = 1u << 20;
// Of a connection that has not shown the key yet.
inline constexpr size_t kMaxStrangerPayload = 64;

struct Frame {
  FrameType type = FrameType::kHello;
  uint8_t hops = 0;
  int from = kToLink;
  int to = kToLink;
  std::string payload;
};

using EncodedFrame = std::shared_ptr<const std::string>;
EncodedFrame encode(const Frame& frame);

class FrameParser {
 public:
  explicit FrameParser(size_t max_payload) : max_payload_(max_payload) {}
  void set_max_payload(size_t bytes) { max_payload_ = bytes; }

  void feed(const char* data, size_t bytes);
  // False: no complete frame is there, or the stream is broken.
  bool next(Frame* frame);
  bool broken() const { return broken_; }
  size_t buffered() const { return buffer_.size() - start_; }

 private:
  size_t max_payload_;
  bool broken_ = false;
  std::string buffer_;
  size_t start_ = 0;  // of what has not been handed out
};

// Payloads: numbers in the host's byte order, texts with their length. Records exchanged at
// creation make sure that all ranks have the same byte order.
class Writer {
 public:
  template <typename T>
  Writer& number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Writer& text(std::string_view text) {
    number<uint64_t>(text.size());
    return raw(text);
  }
  Writer& raw(std::string_view bytes) {
    out_.append(bytes);
    return *this;
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads nothing past the end: ok() turns false, and stays so.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T number() {
    static_assert(std::is_arithmetic_v<T>);
    T value{};
    if (take(sizeof(T))) __builtin_memcpy(&value, taken_.data(), sizeof(T));
    return value;
  }
  std::string_view text() {
    const uint64_t bytes = number<uint64_t>();
    return raw(bytes);
  }
  std::string_view raw(uint64_t bytes) { return take(bytes) ? taken_ : std::string_view(); }
  std::string_view rest() const { return rest_; }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  bool take(uint64_t bytes) {
    if (!ok_ || bytes > rest_.size()) return ok_ = false;
    taken_ = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return true;
  }

  std::string_view rest_;
  std::string_view taken_;
  bool ok_ = true;
};

}  // namespace hetccl::net
