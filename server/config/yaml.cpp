// Converts YAML to JSON, with the places in the text.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <regex>
#include <set>

#include "server/config/document.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

// Aliases can expand a short text enormously; no real configuration comes near these limits.
constexpr int kMaxNodes = 100'000;
constexpr int kMaxDepth = 64;

/// Not by std::regex, which recurses for each character: a scalar may have a MiB of digits.
std::optional<json> integer(const std::string& text) {
  std::string_view digits = text;
  int base = 10;
  if (digits.starts_with("0o") || digits.starts_with("0x")) {
    base = digits[1] == 'o' ? 8 : 16;
    digits.remove_prefix(2);
  }
  const bool negative = base == 10 && digits.starts_with('-');
  if (negative || (base == 10 && digits.starts_with('+'))) digits.remove_prefix(1);
  const std::string_view all = "0123456789abcdefABCDEF";
  const std::string_view allowed = base == 16 ? all : all.substr(0, static_cast<std::size_t>(base));
  if (digits.empty() || digits.find_first_not_of(allowed) != std::string_view::npos) return std::nullopt;
  const char* end = digits.data() + digits.size();
  if (negative) {
    std::int64_t number = 0;
    if (std::from_chars(digits.data() - 1, end, number).ec == std::errc{}) return json(number);
  } else {
    std::uint64_t number = 0;
    if (std::from_chars(digits.data(), end, number, base).ec == std::errc{}) return json(number);
  }
  // Too large for an integer: its range refuses it.
  return json(base == 8 ? HUGE_VAL : std::strtod(text.c_str(), nullptr));
}

json plain_scalar(const std::string& text) {
  static const std::set<std::string> kNull{"", "~", "null", "Null", "NULL"};
  static const std::set<std::string> kTrue{"true", "True", "TRUE"}, kFalse{"false", "False", "FALSE"};
  static const std::regex kFloat("[-+]?(\\.[0-9]+|[0-9]+(\\.[0-9]*)?)([eE][-+]?[0-9]+)?");
  static const std::regex kInfinity("[-+]?\\.(inf|Inf|INF)"), kNan("\\.(nan|NaN|NAN)");
  if (kNull.contains(text)) return nullptr;
  if (kTrue.contains(text)) return true;
  if (kFalse.contains(text)) return false;
  if (auto number = integer(text)) return *number;
  if (text.size() < 400 && std::regex_match(text, kFloat)) return std::strtod(text.c_str(), nullptr);
  if (std::regex_match(text, kInfinity)) return text[0] == '-' ? -HUGE_VAL : HUGE_VAL;
  if (std::regex_match(text, kNan)) return std::nan("");
  return text;
}

json scalar(const YAML::Node& node) {
  const auto& tag = node.Tag();
  if (tag == "!" || tag == "tag:yaml.org,2002:str") return node.Scalar();
  return plain_scalar(node.Scalar());
}

class Converter {
 public:
  Converter(std::string name, Document& out) : name_(std::move(name)), out_(out) {}

  json convert(const YAML::Node& node, const Pointer& at, const Place& key, int depth = 0) {
    const Place place = node.Mark().is_null() || node.IsNull() ? key : place_of(node);
    out_.put(at, {key, place});
    if (!counted(place, at, depth)) return nullptr;
    if (node.IsMap()) return map(node, at, depth);
    if (node.IsSequence()) return sequence(node, at, depth);
    if (!node.IsScalar()) return nullptr;
    auto value = scalar(node);
    if (value.is_number_float() && !std::isfinite(value.get<double>())) {
      out_.wrong_at(place, at, fmt::format("{} is not a finite number", node.Scalar()));
      return 1;
    }
    return value;
  }

 private:
  // Counts one more node. False, reported once: there are too many.
  bool counted(const Place& place, const Pointer& at, int depth) {
    if (depth <= kMaxDepth && ++nodes_ <= kMaxNodes) return !overflowed_;
    if (!overflowed_) out_.wrong_at(place, at, "is too deep or too large (do aliases contain themselves?)");
    overflowed_ = true;
    return false;
  }

  [[nodiscard]] Place place_of(const YAML::Node& node) const {
    return {name_, node.Mark().line + 1, node.Mark().column + 1};
  }

  json sequence(const YAML::Node& node, const Pointer& at, int depth) {
    json out = json::array();
    for (std::size_t i = 0; i < node.size() && !overflowed_; ++i) {
      const Place place = node[i].IsNull() ? place_of(node) : place_of(node[i]);
      out.push_back(convert(node[i], at / std::to_string(i), place, depth + 1));
    }
    return out;
  }

  struct Entry {
    Place place;
    YAML::Node value;
  };
  using Entries = std::map<std::string, Entry>;

  json map(const YAML::Node& node, const Pointer& at, int depth) {
    Entries entries;
    collect(node, at, depth, entries);
    json out = json::object();
    for (const auto& [name, entry] : entries) {
      if (overflowed_) break;
      out[name] = convert(entry.value, at / name, entry.place, depth + 1);
    }
    return out;
  }

  // The keys of `node`, then those that it merges; a key that exists already wins.
  void collect(const YAML::Node& node, const Pointer& at, int depth, Entries& out) {
    Entries own;
    std::vector<YAML::Node> merged;
    for (const auto& entry : node) {
      const Place place = place_of(entry.first);
      if (!counted(place, at, depth)) return;
      if (!entry.first.IsScalar()) {
        out_.wrong_at(place, at, "a key must be plain text");
        continue;
      }
      const auto& name = entry.first.Scalar();
      if (name == "<<" && entry.first.Tag() != "!") {
        add_merged(entry.second, place, at, merged);
      } else if (const auto [before, fresh] = own.try_emplace(name, Entry{place, entry.second}); !fresh) {
        out_.wrong_at(place, at / name,
                      fmt::format("duplicate key, first at {}:{}", before->second.place.line,
                                  before->second.place.column));
      }
    }
    out.merge(own);
    for (const auto& source : merged) {
      if (!counted(place_of(source), at, depth + 1)) return;
      collect(source, at, depth + 1, out);
    }
  }

  void add_merged(const YAML::Node& node, const Place& place, const Pointer& at,
                  std::vector<YAML::Node>& out) {
    if (node.IsMap()) {
      out.push_back(node);
      return;
    }
    bool maps = node.IsSequence();
    if (maps) {
      for (const auto& item : node) maps = maps && item.IsMap();
    }
    if (!maps) {
      out_.wrong_at(place, at, "<< merges a map or a list of maps");
      return;
    }
    for (const auto& item : node) out.push_back(item);
  }

  std::string name_;
  Document& out_;
  int nodes_ = 0;
  bool overflowed_ = false;
};

/// Lines up to the one at index `last`, which counts from 0.
std::vector<std::string_view> lines_up_to(std::string_view text, int last) {
  std::vector<std::string_view> out;
  while (static_cast<int>(out.size()) <= last) {
    const auto end = text.find('\n');
    out.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return out;
}

/// Why the last of `lines` may be indented wrongly; empty: its indentation is consistent.
std::string indentation_hint(const std::vector<std::string_view>& lines) {
  const auto indentation = [](std::string_view line) { return line.find_first_not_of(' '); };
  const std::size_t found = indentation(lines.back());
  std::vector<std::size_t> open;  // lines, from the last on, that it could continue
  std::size_t above = 0;          // the line before
  for (std::size_t i = lines.size() - 1; i-- > 0;) {
    const std::size_t own = indentation(lines[i]);
    if (own == std::string_view::npos || lines[i][own] == '#' || lines[i][own] == '\r') continue;
    if (open.empty()) above = i;
    if (open.empty() || own < open.back()) open.push_back(own);
  }
  if (open.empty() || found == std::string_view::npos) return {};
  if (found > open.front())
    return fmt::format("; indentation: expected at most {} spaces, as in line {}, found {}", open.front(),
                       above + 1, found);
  if (std::find(open.begin(), open.end(), found) != open.end()) return {};
  std::reverse(open.begin(), open.end());
  return fmt::format("; indentation: expected {} spaces, found {}", fmt::join(open, " or "), found);
}

/// Names a line above without the space after its colon, which makes it text: yaml-cpp reports the next line.
std::string colon_hint(const std::vector<std::string_view>& lines) {
  for (std::size_t i = lines.size() - 1; i-- > 0;) {
    const std::string_view line = lines[i];
    const std::size_t begin = line.find_first_not_of(" -");
    if (begin == std::string_view::npos || line[begin] == '#' || line[begin] == '\r') continue;
    const std::size_t colon = line.find(':', begin);
    if (colon == std::string_view::npos || colon + 1 == line.size()) return {};
    if (line[colon + 1] == ' ' || line[colon + 1] == '\r' || line[colon + 1] == '/') return {};
    return fmt::format("; line {} needs a space after `{}`", i + 1, line.substr(begin, colon + 1 - begin));
  }
  return {};
}

/// yaml-cpp does not report that a tab or the indentation is wrong: it reports a consequence.
std::string whitespace_hint(std::string_view text, const YAML::Exception& error) {
  if (error.mark.line < 0) return {};
  const auto lines = lines_up_to(text, error.mark.line);
  if (static_cast<int>(lines.size()) <= error.mark.line) return {};
  if (lines.back().find('\t') != std::string_view::npos) return "; a tab: YAML indents with spaces";
  if (error.msg.find("map flow") != std::string::npos)
    return "; a `{` above is not closed, or a comma is missing";
  if (error.msg.find("sequence flow") != std::string::npos)
    return "; a `[` above is not closed, or a comma is missing";
  auto hint = indentation_hint(lines);
  return hint.empty() ? colon_hint(lines) : hint;
}

}  // namespace

bool read_yaml(std::string_view text, const std::string& name, Document& out) {
  const auto refuse = [&](const YAML::Mark& mark, const std::string& message) {
    out.wrong_at({name, mark.line + 1, mark.column + 1}, Pointer(), message);
    return false;
  };
  try {
    const auto documents = YAML::LoadAll(std::string(text));
    if (documents.size() > 1) return refuse(documents[1].Mark(), "a second document; a configuration is one");
    const bool empty = documents.empty() || documents[0].IsNull();
    if (empty || !documents[0].IsMap())
      return refuse({}, fmt::format("expected a map with the keys `sources` and `streams`, found {}",
                                    empty                       ? "nothing"
                                    : documents[0].IsSequence() ? "a list"
                                                                : "text"));
    out.value = Converter(name, out).convert(documents[0], Pointer(), {name, 1, 1});
    return true;
  } catch (const YAML::Exception& error) {
    return refuse(error.mark, "YAML: " + error.msg + whitespace_hint(text, error));
  }
}

Result<nlohmann::json> read_override(const std::string& text) {
  const bool structured = !text.empty() && std::string_view("[{\"'").find(text[0]) != std::string_view::npos;
  if (!structured) {
    auto value = plain_scalar(text);
    if (value.is_number_float() && !std::isfinite(value.get<double>()))
      return fail(ErrorCode::kConfigInvalid, fmt::format("{} is not a finite number", text));
    return value;
  }
  Document scratch("");
  try {
    auto value = Converter("", scratch).convert(YAML::Load(text), Pointer(), {});
    const auto problems = scratch.problems();
    if (problems.empty()) return value;
    return fail(ErrorCode::kConfigInvalid, problems[0].message);
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::kConfigInvalid, fmt::format("YAML: {}", error.msg));
  }
}

}  // namespace headrace::server::config
