#include "server/source/path_list.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

namespace headrace::server::source {
namespace {

// Finds a sample by its name. Hashes instead of names: 16 bytes per sample, whatever its path.
class NameIndex {
 public:
  explicit NameIndex(const Source& source) : source_(source), hashes_(source.size()) {
    for (std::uint64_t i = 0; i < hashes_.size(); ++i) hashes_[i] = {hash(source.name(i)), i};
    std::sort(hashes_.begin(), hashes_.end());
  }

  [[nodiscard]] std::optional<std::uint64_t> find(const std::string& name) const {
    const auto wanted = hash(name);
    for (auto it = std::lower_bound(hashes_.begin(), hashes_.end(), std::pair{wanted, std::uint64_t{0}});
         it != hashes_.end() && it->first == wanted; ++it)
      if (source_.name(it->second) == name) return it->second;
    return std::nullopt;
  }

 private:
  static std::uint64_t hash(const std::string& name) { return XXH3_64bits(name.data(), name.size()); }

  const Source& source_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> hashes_;
};

struct Place {
  const std::filesystem::path* file = nullptr;
  std::uint64_t line = 0;
};

constexpr std::size_t kShownProblems = 10;

}  // namespace

Result<std::map<std::string, std::vector<std::uint64_t>>> read_path_lists(
    const Source& whole, const std::map<std::string, std::filesystem::path>& lists) {
  const NameIndex index(whole);
  std::vector<Place> seen(whole.size());
  std::map<std::string, std::vector<std::uint64_t>> out;
  std::vector<std::string> problems;
  std::size_t more = 0;
  const auto report = [&](std::string problem) {
    if (problems.size() < kShownProblems) {
      problems.push_back(std::move(problem));
    } else {
      ++more;
    }
  };
  for (const auto& [part, file] : lists) {
    auto& indices = out[part];
    std::ifstream stream(file);
    if (!stream) {
      report(fmt::format("{}: the list of part \"{}\" cannot be read: {}", file.string(), part,
                         std::strerror(errno)));
      continue;
    }
    std::string text;
    for (std::uint64_t line = 1; std::getline(stream, text); ++line) {
      if (!text.empty() && text.back() == '\r') text.pop_back();
      if (text.starts_with("./")) text.erase(0, 2);
      if (text.empty()) continue;
      const auto found = index.find(text);
      if (!found) {
        report(fmt::format("{}:{}: \"{}\" is not in the source; paths are relative to it, as \"{}\"",
                           file.string(), line, text, whole.name(0)));
        continue;
      }
      auto& before = seen[*found];
      if (before.file != nullptr) {
        report(fmt::format("{}:{}: \"{}\" was listed before, at {}:{}; parts must be disjoint", file.string(),
                           line, text, before.file->string(), before.line));
        continue;
      }
      before = {&file, line};
      indices.push_back(*found);
    }
    if (stream.bad()) report(fmt::format("{}: reading failed: {}", file.string(), std::strerror(errno)));
    std::sort(indices.begin(), indices.end());
  }
  if (more > 0) problems.push_back(fmt::format("and {} more", more));
  if (!problems.empty()) return fail(ErrorCode::kConfigInvalid, fmt::format("{}", fmt::join(problems, "\n")));
  return out;
}

}  // namespace headrace::server::source
