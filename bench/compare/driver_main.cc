// The ranks of one peer. They sleep until the comparing program gives them a turn: a line
// "COLLECTIVE BYTES BUDGET_S" in each rank's own pipe, DIRECTORY/RANK. Rank 0 answers each with one
// line of JSON in DIRECTORY/answers; its first line says that the peer is ready. A closed pipe ends
// all. No rank waits in the peer's own calls meanwhile: those take the processor while they wait.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "bench/compare/visit.h"
#include "bench/size.h"

namespace hetccl::bench {
namespace {

struct Options {
  PeerArguments peer;
  std::string most = "4M";
  uint64_t most_bytes = 0;
};

// "" or what is wrong.
std::string parse_command(const std::string& line, Cell* cell) {
  std::istringstream words(line);
  std::string collective;
  if (!(words >> collective >> cell->bytes >> cell->budget_s)) return "'" + line + "'";
  return parse_kind(collective, &cell->kind) ? "" : "no collective '" + collective + "'";
}

int serve(const World& world, Peer* peer, const Options& options) {
  Visitor visitor(world, peer, options.most_bytes);
  const std::string wrong = visitor.start();
  if (!world.agree(wrong.empty(), wrong)) return 1;
  const std::string directory = options.peer.directory + "/";
  std::ifstream commands(directory + std::to_string(world.rank()));
  std::ofstream answers;
  if (world.rank() == 0) answers.open(directory + "answers");
  const bool open = commands.good() && answers.good();
  if (!world.agree(open, "no pipes in " + directory)) return 1;
  if (world.rank() == 0) {
    answers << nlohmann::json{{"ready", peer->version()}, {"ranks", world.ranks()}} << std::endl;
  }
  for (std::string line; std::getline(commands, line);) {
    Cell cell{};
    const std::string bad = parse_command(line, &cell);
    if (!world.agree(bad.empty(), bad)) return 1;
    const nlohmann::json answer = visitor.visit(cell);
    if (world.rank() == 0) answers << answer << std::endl;
  }
  return 0;
}

int main_of_driver(int argc, char** argv) {
  World world(&argc, &argv, "compare");
  Options options;
  CLI::App app("One of the programs that bench/compare starts; see doc/design/measuring.md.");
  app.add_option("--directory", options.peer.directory, "with the pipes")->required();
  app.add_option("--most", options.most, "largest size to come [4M]");
  app.add_option("--memory", options.peer.memory, "of hetccl: host or host-lib [host]");
  app.add_option("--interface", options.peer.interface, "for libraries that must be told [lo]");
  std::string why;
  try {
    app.parse(argc, argv);
    (void)parse_size(options.most, &options.most_bytes, &why);
  } catch (const CLI::ParseError& error) {
    why = error.what();
  }
  if (!world.agree(why.empty(), why)) return 2;
  std::unique_ptr<Peer> peer = make_peer(world, options.peer, &why);
  if (!world.agree(peer != nullptr, why)) return 1;
  return serve(world, peer.get(), options);
}

}  // namespace
}  // namespace hetccl::bench

int main(int argc, char** argv) { return hetccl::bench::main_of_driver(argc, argv); }
