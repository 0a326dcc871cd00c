#include "server/source/combine/sample_list.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "server/sampler/sampler.h"
#include "server/source/files/text_lines.h"
#include "server/source/problems.h"

namespace headrace::server::source {
namespace {

/// The index in `source` of the sample that batches report as `wanted`.
std::optional<std::uint64_t> find(const Source& source, std::uint64_t wanted) {
  std::uint64_t low = 0, high = source.size();
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (source.whole_index(middle) < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low < source.size() && source.whole_index(low) == wanted) return low;
  return std::nullopt;
}

}  // namespace

Result<std::vector<std::uint64_t>> read_sample_list(const Source& source, const std::filesystem::path& file) {
  std::vector<std::uint64_t> out;
  Problems problems;
  const auto why = each_line(file, [&](std::uint64_t line, std::string_view text) {
    std::uint64_t index = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    const bool whole_number = end == text.data() + text.size() && error != std::errc::invalid_argument;
    if (!whole_number) {
      problems.add(file, line, fmt::format("\"{}\" is not the index of a sample", text));
      return;
    }
    const auto found = error == std::errc() ? find(source, index) : std::nullopt;
    if (found) {
      out.push_back(*found);
    } else {
      problems.add(file, line,
                   fmt::format("there is no sample {} here; there are {}, from {} to {}", text, source.size(),
                               source.whole_index(0), source.whole_index(source.size() - 1)));
    }
  });
  if (!why.empty()) problems.add(fmt::format("{}: the list cannot be read: {}", file.string(), why));
  if (problems.none() && (out.empty() || out.size() > sampler::kMostSamples))
    problems.add(fmt::format("{}: lists {} samples; a list has 1 to {}", file.string(), out.size(),
                             sampler::kMostSamples));
  if (!problems.none()) return fail(problems.error(ErrorCode::kConfigInvalid));
  return out;
}

}  // namespace headrace::server::source
