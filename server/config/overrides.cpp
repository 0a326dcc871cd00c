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

// The possible members of a node: the document's keys or indices, and those that the schema knows.
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

// The schema of a member, even if it is undecided which branch applies.
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

// Every path that can be set, or only those below nodes that `into` accepts: keys and how deep they are.
using Into = std::function<bool(const std::string& key, std::size_t depth)>;

void list_paths(const json& start, const json& value, const Segments& above, const Into& into,
                std::vector<Segments>& out) {
  constexpr std::size_t kMostParts = 8, kMost = 5000;
  static const json kAny = json::object();
  if (above.size() > kMostParts || out.size() > kMost) return;
  if (!above.empty()) out.push_back(above);
  // A scalar is replaced by the map on the path: metrics: off, then metrics.port.
  const bool map = value.is_object() || value.is_array();
  const json& node = resolve(start, map ? value : json());
  for (const auto& key : keys_below(node, value)) {
    if (!into(key, above.size())) continue;
    auto path = above;
    path.push_back(key);
    const json* below = schema_below(node, value, key);
    list_paths(below != nullptr ? *below : kAny, member(value, key), path, into, out);
  }
}

Pointer pointer_to(const Segments& path) {
  Pointer at;
  for (const auto& segment : path) at /= segment;
  return at;
}

using Same = std::function<bool(const std::string& key, const std::string& written)>;

std::optional<Pointer> find(const Document& document, const Segments& written, const Same& same) {
  std::vector<Segments> paths;
  list_paths(
      schema(), document.value, {},
      [&](const std::string& key, std::size_t depth) {
        return depth < written.size() && same(key, written[depth]);
      },
      paths);
  const auto found = std::find_if(paths.begin(), paths.end(),
                                  [&](const Segments& path) { return path.size() == written.size(); });
  if (found == paths.end()) return std::nullopt;
  return pointer_to(*found);
}

/// Whether `path` leads into a source or stream that the configuration does not have.
bool in_missing_entry(const json& root, const Segments& path) {
  const bool entry = path.size() > 1 && (path[0] == "sources" || path[0] == "streams");
  return entry && member(member(root, path[0]), path[1]).is_null();
}

/// If `path` indexes a list out of range, describes its last item; otherwise empty.
std::string missing_item(const json& root, const Segments& path, const Same& same) {
  const json* value = &root;
  Segments above;
  for (const auto& segment : path) {
    std::string key = segment;
    if (value->is_array() && !(is_index(segment) && std::stoul(segment) < value->size()))
      return value->empty()
                 ? fmt::format("{} is empty", fmt::join(above, "."))
                 : fmt::format("the last item of {} is {}", fmt::join(above, "."), value->size() - 1);
    for (const auto& [name, below] : value->items())
      if (value->is_object() && same(name, segment)) key = name;
    value = &member(*value, key);
    above.push_back(key);
  }
  return {};
}

template <class Write>
std::string suggest(const Document& document, const std::string& written, Write write) {
  std::vector<Segments> paths;
  list_paths(
      schema(), document.value, {}, [](const auto&, std::size_t) { return true; }, paths);
  std::vector<std::string> names;
  names.reserve(paths.size());
  for (const auto& path : paths) names.push_back(write(path));
  if (auto near = nearest(written, names); !near.empty()) return near;
  // A key without the maps above it: batch_size. Keys of the document come first, then those with the fewest
  // maps above them: seed is a stream's, not a split's.
  std::optional<std::size_t> best;
  std::pair<bool, std::size_t> least;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (write({paths[i].back()}) != written) continue;
    const std::pair rank(!document.value.contains(pointer_to(paths[i])), paths[i].size());
    if (!best || rank < least) best = i, least = rank;
  }
  return best ? names[*best] : "";
}

// Replaces scalars on the path by maps.
json& make(json& root, const Pointer& at) {
  if (at.empty()) return root;
  json& above = make(root, at.parent_pointer());
  if (above.is_array()) return above.at(std::stoul(at.back()));
  if (!above.is_object()) above = json::object();
  return above[at.back()];
}

void set(Document& document, const Pointer& at, const Override& override) {
  auto value = read_override(override.value);
  if (!value) {
    document.wrong_at({override.origin}, at, value.error().message);
    return;
  }
  make(document.value, at) = std::move(*value);
  document.put_override(at, override.origin);
}

/// Whether there is a value at `at`, or a word in place of one of the maps above it, such as `metrics: off`.
bool given(const json& root, Pointer at) {
  if (root.contains(at)) return true;
  for (; !at.empty(); at.pop_back()) {
    const Pointer above = at.parent_pointer();
    if (root.contains(above)) return !root.at(above).is_object();
  }
  return false;
}

}  // namespace

Environment process_environment() {
  Environment out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) out.emplace_back(*entry);
  return out;
}

Result<Override> parse_flag(std::string_view flag, std::string_view option) {
  const auto equals = flag.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{0} {1}: must be path=value, as in {0} streams.train.batch_size=32", option, flag));
  return Override{std::string(flag.substr(0, equals)), std::string(flag.substr(equals + 1)),
                  fmt::format("{} {}", option, flag)};
}

void apply_environment(const Environment& environment, Document& document) {
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
    const Same same = [](const auto& key, const auto& path) { return as_variable(key) == as_variable(path); };
    const auto at = find(document, cut(rest, "__"), same);
    if (at) {
      set(document, *at, {dotted(*at), variable.substr(equals + 1), name});
      continue;
    }
    if (const auto item = missing_item(document.value, cut(rest, "__"), same); !item.empty()) {
      document.wrong_at({name}, Pointer(), fmt::format("there is no such item: {}", item));
      continue;
    }
    auto near = suggest(document, name, [](const Segments& path) {
      std::vector<std::string> words;
      for (const auto& segment : path) words.push_back(as_variable(segment));
      return fmt::format("{}{}", kPrefix, fmt::join(words, "__"));
    });
    document.wrong_at({name}, Pointer(),
                      "this variable names no key of the configuration: join keys with two underscores, as "
                      "in HEADRACE_STREAMS__TRAIN__BATCH_SIZE",
                      std::move(near));
  }
}

void apply_flags(std::span<const Override> flags, Document& document) {
  for (const auto& flag : flags) {
    const Same same = std::equal_to<>();
    const auto at = find(document, cut(flag.path, "."), same);
    if (at) {
      if (!flag.fallback || !given(document.value, *at)) set(document, *at, flag);
      continue;
    }
    const Segments path = cut(flag.path, ".");
    const std::string nothing =
        fmt::format("there is no \"{}\" in the configuration{}", flag.path,
                    in_missing_entry(document.value, path)
                        ? " (--set cannot add a source or stream: declare it in the file)"
                        : "");
    if (const auto item = missing_item(document.value, path, same); !item.empty()) {
      document.wrong_at({flag.origin}, Pointer(), fmt::format("{}: {}", nothing, item));
      continue;
    }
    document.wrong_at({flag.origin}, Pointer(), nothing,
                      suggest(document, flag.path,
                              [](const Segments& each) { return fmt::format("{}", fmt::join(each, ".")); }));
  }
}

}  // namespace headrace::server::config
