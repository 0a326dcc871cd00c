#include "server/session/labels.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_map>

namespace headrace::server::session {
namespace {

/// Empty: no class has two labels.
std::string conflict(const StreamInfo& one, const StreamInfo& other) {
  if (one.classes == other.classes) return {};
  std::unordered_map<std::string_view, std::size_t> labels;
  for (std::size_t label = 0; label < one.classes.size(); ++label) labels.emplace(one.classes[label], label);
  for (std::size_t label = 0; label < other.classes.size(); ++label)
    if (const auto found = labels.find(other.classes[label]); found != labels.end() && found->second != label)
      return fmt::format(
          "class `{}` has label {} in stream `{}`, but {} in stream `{}`, because their lists of classes "
          "differ. Give both the same class folders, or a `relabel` with one list of `classes` over each",
          found->first, found->second, one.name, label, other.name);
  return {};
}

}  // namespace

std::vector<std::string> label_conflicts(const std::vector<exec::StreamSetup>& streams) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < streams.size(); ++i)
    for (std::size_t j = i + 1; j < streams.size(); ++j)
      if (std::string text = conflict(streams[i].info, streams[j].info); !text.empty())
        found.push_back(std::move(text));
  return found;
}

}  // namespace headrace::server::session
