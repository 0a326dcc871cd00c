#include "server/config/overrides.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>

#include "clientlib/base/nearest.h"
#include "server/config/schema.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;
using Segments = std::vector<std::string>;

constexpr std::string_view kPrefix = "HEADRACE_";

Segments cut(std::string_view text, std::string_view separator) {
  Segments out;
  while (true) {
    const auto at = text.find(separator);
    out.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + separator.size());
  }
}

std::string as_variable(std::string_view key) {
  std::string out(key);
  for (auto& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    c = std::isalnum(byte) ? static_cast<char>(std::toupper(byte)) : '_';
  }
  return out;
}

bool is_index(const std::string& text) {
  return !text.empty() && text.size() < 6 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// What may stand below a node: the document's keys or indices, and those that the schema knows.
Segments keys_below(const json& node, const json& value) {
  Segments out = value.is_array() ? Segments{} : known_keys(node);
  if (value.is_object())
    for (const auto& [name, ignored] : value.items()) out.push_back(name);
  if (value.is_array())
    for (std::size_t i = 0; i < value.size(); ++i) out.push_back(std::to_string(i));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// The schema below, also where it is open which branch is meant.
const json* schema_below(const json& node, const json& value, const std::string& name) {
  if (const json* found = child(node, value, name)) return found;
  for (const char* key : {"anyOf", "oneOf"}) {
    const auto options = node.find(key);
    if (options == node.end()) continue;
    for (const auto& option : *options)
      if (const json* found = child(resolve(option, nullptr), json::object(), name)) return found;
  }
  return nullptr;
}

const json& member(const json& value, const std::string& name) {
  static const json kNothing;
  if (value.is_object() && value.contains(name)) return value.at(name);
  if (value.is_array() && is_index(name) && std::stoul(name) < value.size())
    return value.at(std::stoul(name));
  return kNothing;
}

using Same = std::function<bool(const std::string& key, const std::string& written)>;

std::optional<Pointer> find(const Document& document, const Segments& path, const Same& same) {
  static const json kAny = json::object();
  Pointer at;
  const json* value = &document.value;
  const json* node = &schema();
  for (const auto& written : path) {
    // A scalar gives way to the map that the path goes through: metrics: off, then metrics.port.
    const json* at_node = &resolve(*node, *value);
    if (!value->is_object() && !value->is_array()) at_node = &resolve(*node, nullptr);
    const auto keys = keys_below(*at_node, *value);
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const auto& k) { return same(k, written); });
    if (key == keys.end()) return std::nullopt;
    const json* below = schema_below(*at_node, *value, *key);
    node = below != nullptr ? below : &kAny;
    value = &member(*value, *key);
    at /= *key;
  }
  return at;
}

// Every path that can be set, for suggestions.
void list_paths(const json& start, const json& value, const Segments& above, std::vector<Segments>& out) {
  constexpr std::size_t kDeepest = 8, kMost = 5000;
  if (above.size() > kDeepest || out.size() > kMost) return;
  const json* node = &resolve(start, value);
  if (!value.is_object() && !value.is_array()) node = &resolve(start, nullptr);
  const auto keys = keys_below(*node, value);
  if (!above.empty()) out.push_back(above);
  for (const auto& key : keys) {
    auto path = above;
    path.push_back(key);
    if (const json* below = schema_below(*node, value, key)) {
      list_paths(*below, member(value, key), path, out);
    } else {
      out.push_back(path);
    }
  }
}

template <class Write>
std::string suggest(const Document& document, const std::string& written, Write write) {
  std::vector<Segments> paths;
  list_paths(schema(), document.value, {}, paths);
  std::vector<std::string> names;
  names.reserve(paths.size());
  for (const auto& path : paths) names.push_back(write(path));
  return nearest(written, names);
}

void set(Document& document, const Pointer& at, const Override& override, std::vector<Problem>& problems) {
  auto value = read_override(override.value);
  if (!value) {
    problems.push_back({override.origin, 0, 0, dotted(at), value.error().message, ""});
    return;
  }
  json* node = &document.value;
  Segments names;
  for (Pointer p = at; !p.empty(); p = p.parent_pointer()) names.push_back(p.back());
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (node->is_array()) {
      node = &node->at(std::stoul(*name));
    } else {
      if (!node->is_object()) *node = json::object();
      node = &(*node)[*name];
    }
  }
  *node = std::move(*value);
  document.put_override(at, override.origin);
}

}  // namespace

Environment process_environment() {
  Environment out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) out.emplace_back(*entry);
  return out;
}

Result<Override> parse_flag(std::string_view flag) {
  const auto equals = flag.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--set {}: must be path=value, as in --set streams.train.batch_size=32", flag));
  return Override{std::string(flag.substr(0, equals)), std::string(flag.substr(equals + 1)),
                  fmt::format("--set {}", flag)};
}

void apply_environment(const Environment& environment, Document& document, std::vector<Problem>& problems) {
  auto variables = environment;
  std::sort(variables.begin(), variables.end());
  for (const auto& variable : variables) {
    const auto equals = variable.find('=');
    if (equals == std::string::npos || !variable.starts_with(kPrefix)) continue;
    const auto name = variable.substr(0, equals);
    const auto rest = name.substr(kPrefix.size());
    bool ours = rest.find("__") != std::string::npos;
    for (const auto& top : known_keys(schema())) ours = ours || rest.starts_with(as_variable(top) + "_");
    if (!ours) continue;
    const auto at = find(document, cut(rest, "__"), [](const auto& key, const auto& written) {
      return as_variable(key) == as_variable(written);
    });
    if (at) {
      set(document, *at, {dotted(*at), variable.substr(equals + 1), name}, problems);
      continue;
    }
    auto near = suggest(document, name, [](const Segments& path) {
      std::vector<std::string> words;
      for (const auto& segment : path) words.push_back(as_variable(segment));
      return fmt::format("{}{}", kPrefix, fmt::join(words, "__"));
    });
    problems.push_back({name, 0, 0, "",
                        "this variable leads to nothing in the configuration; HEADRACE_ names are the keys "
                        "joined by two underscores",
                        std::move(near)});
  }
}

void apply_flags(std::span<const Override> flags, Document& document, std::vector<Problem>& problems) {
  for (const auto& flag : flags) {
    const auto at = find(document, cut(flag.path, "."),
                         [](const auto& key, const auto& written) { return key == written; });
    if (at) {
      set(document, *at, flag, problems);
      continue;
    }
    auto near = suggest(document, flag.path,
                        [](const Segments& path) { return fmt::format("{}", fmt::join(path, ".")); });
    problems.push_back({flag.origin, 0, 0, "",
                        fmt::format("there is no \"{}\" in the configuration", flag.path), std::move(near)});
  }
}

}  // namespace headrace::server::config
