#include "server/config/check_storage.h"

#include <fmt/format.h>

#include <chrono>
#include <string>

#include "server/config/sources.h"
#include "server/described/units.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kLongestDelay{10};  // longer than any storage that still works
constexpr std::uint64_t kLeast = 1'000'000;        // bytes

void check_cache(const Document& document, const Pointer& at, const source::SourceTraits& traits,
                 std::vector<Problem>& problems) {
  const json& cache = document.value.at(at);
  for (const char* kind : {"encoded", "decoded"}) {
    if (!cache.contains(kind)) continue;
    const auto bytes = parse_size(cache[kind].get<std::string>());
    if (!bytes || *bytes == 0)
      problems.push_back(document.at_value(
          at / kind, fmt::format("{} is {}", cache[kind].dump(),
                                 bytes ? "no room for anything; leave it out" : "more than 9007 TB")));
  }
  if (cache.contains("tile") && !cache.contains("encoded"))
    problems.push_back(document.at_key(
        at / "tile", "it is the cache `encoded` that keeps JPEGs; give it a budget, or leave this out"));
  if (traits.in_memory != nullptr && cache.contains("encoded"))
    problems.push_back(document.at_key(at / "encoded", fmt::format("{}; leave this out", traits.in_memory)));
}

void check_io(const Document& document, const Pointer& at, const source::SourceType& type,
              std::vector<Problem>& problems) {
  const json& io = document.value.at(at);
  if (io.contains("delay") &&
      parse_duration(io["delay"].get<std::string>()).value_or(2 * kLongestDelay) > kLongestDelay)
    problems.push_back(document.at_value(
        at / "delay", fmt::format("{} is too long for each read; at most 10s", io["delay"].dump())));
  for (const Pointer& size : {at / "memory", at / "disk_cache" / "size"}) {
    if (!document.value.contains(size)) continue;
    const json& value = document.value.at(size);
    if (parse_size(value.get<std::string>()).value_or(0) < kLeast)
      problems.push_back(
          document.at_value(size, fmt::format("{} is not between 1MB and 9007TB", value.dump())));
  }
  if (io.contains("disk_cache") && type.traits.mapped)
    problems.push_back(document.at_key(
        at / "disk_cache",
        fmt::format("a source of type {} is one file or a few, which are mapped: copy them to "
                    "the local disk instead",
                    type.name)));
}

}  // namespace

void check_storage(const Document& document, const Pointer& source, std::vector<Problem>& problems) {
  const json& value = document.value.at(source);
  const source::SourceType& type = type_of(value);
  if (value.contains("cache")) check_cache(document, source / "cache", type.traits, problems);
  if (value.contains("io")) check_io(document, source / "io", type, problems);
}

}  // namespace headrace::server::config
