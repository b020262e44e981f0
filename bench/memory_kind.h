// The kinds of memory that the tools take by name, and a list of them dealt to the ranks. Constant
// data; no library call.
#pragma once

#include <hetccl/hetccl.h>

#include <string>
#include <string_view>
#include <vector>

namespace hetccl::bench {

struct MemoryKind {
  const char* name = "host";
  hetcclMemoryKind_t kind = hetcclMemoryHost;
  bool of_library = false;  // from hetcclMemAlloc

  bool on_device() const { return kind != hetcclMemoryHost; }
};

std::string memory_names();  // "host, host-lib, cuda, ..."

// One for all ranks, or one for each. "" or what is wrong with `names`, beginning with "--memory".
std::string deal_memory(const std::vector<std::string>& names, int ranks,
                        std::vector<MemoryKind>* by_rank);

// As results name it: the one kind of all ranks, or all kinds in rank order.
std::string memory_label(const std::vector<MemoryKind>& by_rank);

}  // namespace hetccl::bench
