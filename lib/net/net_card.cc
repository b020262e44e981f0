#include "lib/net/net_card.h"

#include <cstring>

namespace hetccl::net {
namespace {

constexpr uint64_t kMagic = 0x31'64'72'61'63'68'6c'00;  // changes with the format
constexpr size_t kLongestField = 64 * 1024;

// One description of the format serves both directions.
template <typename Visitor, typename CardType>
void visit(Visitor& v, CardType& card) {
  v.number(card.process[0]);
  v.number(card.process[1]);
  v.number(card.pid);
  v.text(card.full_address);
  v.text(card.network_address);
  v.text(card.table_key);
  v.number(card.table_address);
  v.number(card.region.segment);
  v.number(card.region.generation);
  v.number(card.region.offset);
  v.number(card.region_address);
  v.text(card.region_key);
  v.number(card.lane);
  v.number(card.ranks);
  v.number(card.chunk_bytes);
  v.number(card.depth);
  v.number(card.put);
}

struct Writer {
  std::string out;
  template <typename T>
  void number(T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(const std::string& value) {
    number(uint64_t{value.size()});
    out += value;
  }
};

struct Reader {
  std::string_view in;
  bool good = true;
  template <typename T>
  void number(T& value) {
    good = good && in.size() >= sizeof(value);
    if (!good) return;
    std::memcpy(&value, in.data(), sizeof(value));
    in.remove_prefix(sizeof(value));
  }
  void text(std::string& value) {
    uint64_t size = 0;
    number(size);
    good = good && size <= kLongestField && size <= in.size();
    if (!good) return;
    value.assign(in.substr(0, size));
    in.remove_prefix(size);
  }
};

}  // namespace

std::string write_card(const Card& card) {
  Writer writer;
  writer.number(kMagic);
  visit(writer, card);
  return writer.out;
}

Result<Card> read_card(std::string_view text) {
  Reader reader{text};
  uint64_t magic = 0;
  reader.number(magic);
  if (!reader.good || magic != kMagic) {
    return invalid_usage(
        "a rank's card has another format: all ranks must use the same version of hetccl");
  }
  Card card;
  visit(reader, card);
  if (!reader.good || !reader.in.empty()) {
    return internal_error("a rank's card is damaged: " + std::to_string(text.size()) + " bytes");
  }
  return card;
}

}  // namespace hetccl::net
