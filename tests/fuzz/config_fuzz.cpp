// Configurations: each is complete and read the same twice, or every problem has a text and a place.
// Input: the YAML text, then flags (`--set`), with NUL between them.
#include "server/config/config.h"

#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"

namespace headrace::server::config {
namespace {

void check_problems(const std::vector<Problem>& problems, const std::string& text) {
  const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
  for (const Problem& problem : problems) {
    require(!problem.message.empty() && !problem.to_string().empty(), "a problem has a text");
    require(problem.line >= 0 && problem.line <= lines && problem.column >= 0, "a problem is in the text");
  }
}

void check_config(const Config& config, const Config& again) {
  require(config.streams.size() == again.streams.size() && config.sources.size() == again.sources.size(),
          "a configuration is read the same twice");
  require(config.streams.size() <= kMaxStreams, "a server has a limited number of streams");
  for (const auto& [name, stream] : config.streams) {
    require(config.sources.contains(stream.source), "a stream has its source");
    require(canonical(stream) == canonical(again.streams.at(name)), "a stream's canonical form is one");
    (void)canonical(stream).dump();  // throws for text that is not UTF-8
  }
}

}  // namespace
}  // namespace headrace::server::config

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  using namespace headrace::server::config;
  std::string text(fuzz::text_of({data, size}));
  std::vector<Override> flags;
  for (auto nul = text.rfind('\0'); nul != std::string::npos; nul = text.rfind('\0')) {
    if (auto flag = parse_flag(text.substr(nul + 1))) flags.push_back(std::move(*flag));
    text.resize(nul);
  }
  const Outcome outcome = examine(text, "x.yaml", flags);
  require(outcome.config.has_value() == outcome.problems.empty(),
          "a text is a configuration or has problems");
  check_problems(outcome.problems, text);
  if (outcome.config) check_config(*outcome.config, examine(text, "x.yaml", flags).config.value());
  return 0;
}
