#include "lib/net/frames.h"

#include <cstring>

namespace hetccl::net {
namespace {

struct Header {
  uint32_t bytes;  // of the payload
  uint8_t type;
  uint8_t hops;
  uint16_t zero;
  int32_t from;
  int32_t to;
};
static_assert(sizeof(Header) == kFrameHeaderBytes);

// What has been handed out is dropped once it outweighs this.
constexpr size_t kCompactBytes = 64 * 1024;

}  // namespace

EncodedFrame encode(const Frame& frame) {
  const Header header{static_cast<uint32_t>(frame.payload.size()),
                      static_cast<uint8_t>(frame.type),
                      frame.hops,
                      0,
                      frame.from,
                      frame.to};
  std::string bytes;
  bytes.reserve(sizeof(header) + frame.payload.size());
  bytes.append(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(frame.payload);
  return std::make_shared<const std::string>(std::move(bytes));
}

void FrameParser::feed(const char* data, size_t bytes) {
  if (!broken_) buffer_.append(data, bytes);
}

bool FrameParser::next(Frame* frame) {
  if (broken_ || buffered() < sizeof(Header)) return false;
  Header header;
  std::memcpy(&header, buffer_.data() + start_, sizeof(header));
  const bool known = header.type >= 1 && header.type <= static_cast<uint8_t>(FrameType::kLast);
  if (header.bytes > max_payload_ || header.zero != 0 || !known) {
    broken_ = true;
    buffer_.clear();
    start_ = 0;
    return false;
  }
  if (buffered() < sizeof(header) + header.bytes) return false;
  frame->type = static_cast<FrameType>(header.type);
  frame->hops = header.hops;
  frame->from = header.from;
  frame->to = header.to;
  frame->payload.assign(buffer_, start_ + sizeof(header), header.bytes);
  start_ += sizeof(header) + header.bytes;
  if (start_ == buffer_.size()) {
    buffer_.clear();
    start_ = 0;
  } else if (start_ > kCompactBytes && start_ > buffer_.size() / 2) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  return true;
}

}  // namespace hetccl::net
