// What a rank tells the others about itself when a lane is made. The cards of one process differ
// only in the lane. Plain values; parsing trusts nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/status.h"
#include "lib/net/arena.h"

namespace hetccl::net {

using ProcessToken = std::array<uint64_t, 2>;  // random, one a process

// Whether messages between nodes are put where they are announced. kAuto: where the network has
// one-sided access.
enum class PutChoice : uint32_t { kNo = 0, kAuto = 1, kYes = 2 };

struct Card {
  ProcessToken process{};
  uint64_t pid = 0;
  std::string full_address;     // for peers that share memory
  std::string network_address;  // for the others
  std::string table_key;        // opens the table of the arena's segments
  uint64_t table_address = 0;
  Location region{};  // the lane's mailboxes
  uint64_t region_address = 0;
  std::string region_key;
  uint32_t lane = 0;  // the id that messages to this rank carry
  uint32_t ranks = 0;
  uint64_t chunk_bytes = 0;
  uint64_t depth = 0;
  PutChoice put = PutChoice::kAuto;
};

std::string write_card(const Card& card);
Result<Card> read_card(std::string_view text);

}  // namespace hetccl::net
