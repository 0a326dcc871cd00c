#include "server/config/check_feed.h"

#include <fmt/format.h>

namespace headrace::server::config {
namespace {

/// What the feeder decides, or would need a batch twice.
constexpr const char* kMeaningless[] = {"batch_size", "shuffle",  "sampler",    "seed",          "last",
                                        "delivery",   "on_error", "max_bad",    "derive",        "transforms",
                                        "output",     "warnings", "max_pixels", "resize_passes", "mix",
                                        "device",     "residence"};

}  // namespace

void apply_feed(const Config& config, StreamConfig& stream) {
  const auto source = config.sources.find(stream.source);
  if (source == config.sources.end() || source->second.feed() == nullptr) return;
  stream.batch_size = source->second.feed()->batch_size;
  stream.shuffle = false;
  stream.sharing.on_lag = OnLag::kWait;
}

void check_fed(const Document& document, const Pointer& at, const Config& config,
               std::vector<Problem>& problems) {
  for (const char* key : kMeaningless)
    if (document.value.contains(at / key))
      problems.push_back(document.at_key(
          at / key, "the source is a feed: its batches come as they are, in its order; leave this out"));
  const Pointer on_lag = at / "sharing" / "on_lag";
  if (document.value.contains(on_lag) && document.value.at(on_lag) == "detach")
    problems.push_back(document.at_value(
        on_lag, "the source is a feed, which cannot give a batch twice: clients wait for each other"));
  const StreamConfig& stream = config.streams.at(at.back());
  for (const auto& [name, other] : config.streams)
    if (name != at.back() && other.source == stream.source)
      problems.push_back(document.at_value(
          at / "source", fmt::format("feed \"{}\" is stream \"{}\"'s already: each of its batches comes once",
                                     stream.source, name)));
}

}  // namespace headrace::server::config
