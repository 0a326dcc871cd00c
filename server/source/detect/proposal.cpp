#include "server/source/detect/proposal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace headrace::server::source {

namespace fs = std::filesystem;

Proposal compose(std::string found, std::vector<ProposedStream> parts) {
  std::stable_sort(parts.begin(), parts.end(), [](const ProposedStream& a, const ProposedStream& b) {
    return a.training && !b.training;
  });
  std::vector<ProposedStream> kept;
  for (ProposedStream& part : parts)
    if (std::none_of(kept.begin(), kept.end(),
                     [&](const ProposedStream& other) { return other.name == part.name; }))
      kept.push_back(std::move(part));
  Proposal out{std::move(found), config_of(kept), {}, {}};
  out.parts = std::move(kept);
  return out;
}

std::string config_of(const std::vector<ProposedStream>& parts) {
  std::string out =
      "# yaml-language-server: $schema=headrace.schema.json\n"
      "# Proposed by `headrace check`. Editors complete the keys with the schema: headrace schema > "
      "headrace.schema.json\n"
      "sources:\n";
  for (const ProposedStream& part : parts) out += fmt::format("  {}_set: {}\n", part.name, part.source);
  out += "streams:\n";
  for (const ProposedStream& part : parts) {
    out += fmt::format("  {0}:  # trainers ask for this name: Loader(stream=\"{0}\")\n    source: {0}_set\n",
                       part.name);
    if (!part.training) out += "    shuffle: false  # the same order in each epoch\n";
    out += part.stream;
  }
  return out;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string relative_to(const fs::path& folder, std::string config) {
  const auto replace = [&config](const std::string& old, const std::string& by) {
    for (auto at = config.find(old); at != std::string::npos; at = config.find(old, at + by.size()))
      config.replace(at, old.size(), by);
  };
  const std::string alone = quoted(folder.string());
  std::string inside = quoted((folder / "").string());  // with one slash at its end
  replace(inside, "\".\"");
  inside.pop_back();
  replace(alone, "\".\"");
  replace(inside, "\"");
  return config;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code status;
  for (fs::directory_iterator entry(folder, status), end; !status && entry != end; entry.increment(status))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string set_in(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kWords{{{"train", "train"},
                                                                                        {"training", "train"},
                                                                                        {"val", "val"},
                                                                                        {"valid", "val"},
                                                                                        {"validation", "val"},
                                                                                        {"test", "test"},
                                                                                        {"testing", "test"}}};
  constexpr std::string_view kBetween = "_-. 0123456789";
  while (!name.empty()) {
    const std::string_view word = name.substr(0, name.find_first_of(kBetween));
    const auto* const known =
        std::find_if(kWords.begin(), kWords.end(), [&](const auto& pair) { return pair.first == word; });
    if (known != kWords.end()) return std::string(known->second);
    name.remove_prefix(std::min(name.size(), word.size() + 1));
  }
  return {};
}

}  // namespace headrace::server::source
