#include "lib/run/peer_memory.h"

#include <algorithm>
#include <cstring>

namespace hetccl::run {
namespace {

constexpr size_t kExports = 256;  // handles kept
constexpr size_t kImports = 64;   // mappings kept from call to call

struct Header {
  uint64_t id;
  uint64_t offset;
  uint64_t bytes;
};

}  // namespace

PeerMemory::~PeerMemory() {
  for (const Import& import : imports_) (void)accelerator_->close_memory(import.base).ok();
}

void PeerMemory::begin_call() {
  ranges_.clear();
  if (exports_.size() > kExports) exports_.clear();
  for (; imports_.size() > kImports; imports_.pop_back()) {
    (void)accelerator_->close_memory(imports_.back().base).ok();
  }
}

const PeerMemory::Range& PeerMemory::range_of(const void* memory) {
  const auto* at = static_cast<const std::byte*>(memory);
  for (const Range& range : ranges_) {
    if (at >= range.base && at < range.base + range.bytes) return range;
  }
  device::Memory found;
  const auto owner = device::owner_of(memory, &found);
  Range range{at, 1, 0, {}};
  if (owner.ok() && *owner == accelerator_ && found.bytes != 0 && found.id != 0) {
    range = {static_cast<const std::byte*>(found.base), found.bytes, found.id, {}};
    auto known = exports_.find(found.id);
    if (known == exports_.end()) {
      const auto handle = accelerator_->export_memory(found.base);
      known = exports_.emplace(found.id, handle.ok() ? *handle : std::string()).first;
    }
    range.handle = known->second;
  }
  ranges_.push_back(std::move(range));
  return ranges_.back();
}

const std::string& PeerMemory::describe(const void* memory, size_t bytes) {
  const Range& range = range_of(memory);
  message_.clear();
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(memory) - range.base);
  if (range.handle.empty() || offset + bytes > range.bytes) return message_;
  const Header header{range.id, offset, bytes};
  message_.assign(reinterpret_cast<const char*>(&header), sizeof(header));
  message_ += range.handle;
  return message_;
}

Result<PeerMemory::Mapped> PeerMemory::map(int peer, std::span<const std::byte> message) {
  Header header;
  if (message.size() < sizeof(header)) {
    return internal_error("rank " + std::to_string(peer) + " names its memory in " +
                          std::to_string(message.size()) + " bytes");
  }
  std::memcpy(&header, message.data(), sizeof(header));
  const std::string handle(reinterpret_cast<const char*>(message.data()) + sizeof(header),
                           message.size() - sizeof(header));
  const std::string key = std::to_string(peer) + ':' + std::to_string(header.id) + ':' + handle;
  auto found = std::find_if(imports_.begin(), imports_.end(),
                            [&](const Import& import) { return import.key == key; });
  if (found == imports_.end()) {
    const auto base = accelerator_->import_memory(handle);
    if (!base.ok()) return base.status();
    imports_.push_front({key, *base});
    found = imports_.begin();
  } else {
    imports_.splice(imports_.begin(), imports_, found);
  }
  return Mapped{static_cast<const std::byte*>(found->base) + header.offset, header.bytes};
}

}  // namespace hetccl::run
