#include "server/config/check_paths.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "server/described/units.h"
#include "server/remote/url.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

/// `text` up to the end of the first name with a `~` or `$NAME` that a shell would expand; empty: it has
/// none.
std::string_view up_to_expanded(std::string_view text) {
  std::size_t found = text.starts_with('~') ? 0 : std::string_view::npos;
  for (auto at = text.find('$'); at < found; at = text.find('$', at + 1)) {
    const char next = at + 1 < text.size() ? text[at + 1] : ' ';
    if (next == '{' || next == '_' || (next >= 'A' && next <= 'Z') || (next >= 'a' && next <= 'z'))
      found = at;
  }
  return found == std::string_view::npos ? std::string_view() : text.substr(0, text.find('/', found));
}

class Walk {
 public:
  Walk(const Document& document, const std::filesystem::path& folder, std::vector<Problem>& problems)
      : document_(document), folder_(folder), problems_(problems) {}

  void down(const Pointer& at, const json& value, const std::string& key) {
    if (value.is_object()) {
      for (const auto& [name, below] : value.items())
        if (name != "classes") down(at / name, below, name);
    } else if (value.is_array()) {
      for (std::size_t i = 0; i < value.size(); ++i) down(at / std::to_string(i), value[i], key);
    } else if (value.is_string()) {
      text(at, value.get<std::string>(), key);
    }
  }

 private:
  /// Columns and fields may be called anything: without a `/` only these keys hold paths.
  void text(const Pointer& at, const std::string& value, const std::string& key) {
    const bool path = key == "path" || key == "directory" || value.find('/') != std::string::npos;
    const std::string begin(up_to_expanded(value));
    if (!path || begin.empty() || remote::is_url(value)) return;
    std::error_code status;
    // What comes behind may be a pattern, or be made later.
    if (std::filesystem::exists(absolute(folder_, begin), status)) return;
    problems_.push_back(document_.at_value(
        at, fmt::format("{}: `~` and `$NAME` are not expanded; write the absolute path, or one relative to "
                        "the configuration's folder",
                        json(value).dump())));
  }

  const Document& document_;
  const std::filesystem::path& folder_;
  std::vector<Problem>& problems_;
};

}  // namespace

void check_paths(const Document& document, const std::filesystem::path& folder,
                 std::vector<Problem>& problems) {
  Walk walk(document, folder, problems);
  for (const char* key : {"server", "sources", "streams"})
    if (const auto found = document.value.find(key); found != document.value.end())
      walk.down(Pointer() / key, *found, key);
}

}  // namespace headrace::server::config
