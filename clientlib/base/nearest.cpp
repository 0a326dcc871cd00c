#include "clientlib/base/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace headrace {
namespace {

std::string folded(std::string_view text) {
  std::string out(text);
  for (auto& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return out;
}

// The Levenshtein distance, in which a swap of neighboring letters is one step (optimal string alignment).
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), 0U);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

}  // namespace

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  constexpr std::size_t kLongest = 256;  // bounds the time for a hostile name
  if (name.size() > kLongest) return {};
  const auto wanted = folded(name);
  std::string best;
  auto smallest = std::size_t(-1);
  for (const auto& candidate : candidates) {
    const auto steps = distance(wanted, folded(candidate));
    const auto longer = std::max(wanted.size(), candidate.size());
    const auto allowed = std::max<std::size_t>(longer > 3 ? 2 : 1, longer / 3);
    if (steps <= allowed && steps < longer && steps < smallest) {
      smallest = steps;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates, char quote) {
  const std::string near = nearest(name, candidates);
  return near.empty() ? "" : "; did you mean " + (quote + near + quote) + "?";
}

Error no_such_stream(std::string_view name, std::span<const std::string> streams) {
  std::string message = "no stream `" + std::string(name) + "`; expected one of: ";
  for (std::size_t i = 0; i < streams.size(); ++i) message += (i == 0 ? "" : ", ") + streams[i];
  return {ErrorCode::kNoSuchStream, message + did_you_mean(name, streams)};
}

}  // namespace headrace
