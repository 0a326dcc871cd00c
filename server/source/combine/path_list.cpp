#include "server/source/combine/path_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/source/combine/name_index.h"
#include "server/source/files/text_lines.h"
#include "server/source/problems.h"

namespace headrace::server::source {
namespace {

struct Listed {
  const std::filesystem::path* file = nullptr;
  std::uint64_t line = 0;
};

}  // namespace

Result<std::map<std::string, std::vector<std::uint64_t>>> read_path_lists(
    const Source& whole, const std::map<std::string, std::filesystem::path>& lists) {
  const NameIndex index(whole);
  std::vector<Listed> seen(whole.size());
  std::map<std::string, std::vector<std::uint64_t>> out;
  Problems problems;
  for (const auto& [part, list] : lists) {
    const std::filesystem::path& file = list;  // a structured binding cannot be captured
    auto& indices = out[part];
    const auto why = each_line(file, [&](std::uint64_t line, std::string_view text) {
      const auto found = index.find(text);
      if (!found) {
        problems.add(file, line,
                     fmt::format("\"{}\" is not in the source; paths are relative to it, as \"{}\"", text,
                                 whole.name(0)));
        return;
      }
      auto& before = seen[*found];
      if (before.file != nullptr) {
        problems.add(
            file, line,
            fmt::format("\"{}\" was listed before, at {}:{}; {}", text, before.file->string(), before.line,
                        lists.size() > 1 ? "parts must be disjoint" : "each sample belongs there once"));
        return;
      }
      before = {&file, line};
      indices.push_back(*found);
    });
    if (!why.empty())
      problems.add(fmt::format("{}: the list{} cannot be read: {}", file.string(),
                               part.empty() ? "" : fmt::format(" of part \"{}\"", part), why));
    std::sort(indices.begin(), indices.end());
  }
  if (!problems.none()) return fail(problems.error(ErrorCode::kConfigInvalid));
  return out;
}

}  // namespace headrace::server::source
