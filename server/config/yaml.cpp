// From YAML to JSON with places.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <regex>
#include <set>

#include "server/config/document.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

// Aliases can blow a short text up; no configuration comes near these.
constexpr int kMaxNodes = 100'000;
constexpr int kMaxDepth = 64;

std::optional<json> integer(const std::string& text) {
  static const std::regex kDecimal("[-+]?[0-9]+"), kOctal("0o[0-7]+"), kHex("0x[0-9a-fA-F]+");
  int base = 10;
  std::string digits = text;
  if (std::regex_match(text, kOctal)) {
    base = 8;
    digits = text.substr(2);
  } else if (std::regex_match(text, kHex)) {
    base = 16;
    digits = text.substr(2);
  } else if (!std::regex_match(text, kDecimal)) {
    return std::nullopt;
  }
  if (digits[0] == '+') digits.erase(0, 1);
  const char* end = digits.data() + digits.size();
  if (digits[0] == '-') {
    std::int64_t number = 0;
    if (std::from_chars(digits.data(), end, number, base).ec == std::errc{}) return json(number);
  } else {
    std::uint64_t number = 0;
    if (std::from_chars(digits.data(), end, number, base).ec == std::errc{}) return json(number);
  }
  return json(
      std::strtod(text.c_str(), nullptr));  // too large for an integer: still a number, refused by its range
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
  Converter(std::string name, Document& out, std::vector<Problem>& problems)
      : name_(std::move(name)), out_(out), problems_(problems) {}

  json convert(const YAML::Node& node, const Pointer& at, const Place& key, int depth = 0) {
    const Place place = node.Mark().is_null() || node.IsNull() ? key : place_of(node);
    out_.put(at, {key, place});
    if (!counted(place, at, depth)) return nullptr;
    if (node.IsMap()) return map(node, at, depth);
    if (node.IsSequence()) return sequence(node, at, depth);
    if (!node.IsScalar()) return nullptr;
    auto value = scalar(node);
    if (value.is_number_float() && !std::isfinite(value.get<double>())) {
      problems_.push_back({place.file, place.line, place.column, dotted(at),
                           fmt::format("{} is not a finite number", node.Scalar()), ""});
      return 1;
    }
    return value;
  }

 private:
  // One more node is looked at. False, told once: enough.
  bool counted(const Place& place, const Pointer& at, int depth) {
    if (depth <= kMaxDepth && ++nodes_ <= kMaxNodes) return !overflowed_;
    if (!overflowed_)
      problems_.push_back({place.file, place.line, place.column, dotted(at),
                           "is too deep or too large (do aliases contain themselves?)", ""});
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

  // The keys of `node`, then what it merges; a key that is there already wins.
  void collect(const YAML::Node& node, const Pointer& at, int depth, Entries& out) {
    Entries own;
    std::vector<YAML::Node> merged;
    for (const auto& entry : node) {
      const Place place = place_of(entry.first);
      if (!counted(place, at, depth)) return;
      if (!entry.first.IsScalar()) {
        problems_.push_back(
            {place.file, place.line, place.column, dotted(at), "a key must be plain text", ""});
        continue;
      }
      const auto& name = entry.first.Scalar();
      if (name == "<<" && entry.first.Tag() != "!") {
        add_merged(entry.second, place, at, merged);
      } else if (const auto [before, fresh] = own.try_emplace(name, Entry{place, entry.second}); !fresh) {
        problems_.push_back({place.file, place.line, place.column, dotted(at / name),
                             fmt::format("the key is there twice, first at {}:{}", before->second.place.line,
                                         before->second.place.column),
                             ""});
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
      problems_.push_back(
          {place.file, place.line, place.column, dotted(at), "<< merges a map or a list of maps", ""});
      return;
    }
    for (const auto& item : node) out.push_back(item);
  }

  std::string name_;
  Document& out_;
  std::vector<Problem>& problems_;
  int nodes_ = 0;
  bool overflowed_ = false;
};

/// yaml-cpp does not say that a tab is what it could not read: it names what came of that. Lines count from
/// 0.
std::string word_on_tabs(std::string_view text, int line) {
  std::size_t begin = 0;
  for (int i = 0; i < line && begin != std::string_view::npos; ++i) {
    begin = text.find('\n', begin);
    if (begin != std::string_view::npos) ++begin;
  }
  if (line < 0 || begin == std::string_view::npos) return {};
  const std::string_view offending = text.substr(begin, text.find('\n', begin) - begin);
  return offending.find('\t') == std::string_view::npos ? "" : "; a tab: YAML indents with spaces";
}

}  // namespace

bool read_yaml(std::string_view text, const std::string& name, Document& out,
               std::vector<Problem>& problems) {
  try {
    const auto documents = YAML::LoadAll(std::string(text));
    if (documents.size() > 1) {
      const auto mark = documents[1].Mark();
      problems.push_back(
          {name, mark.line + 1, mark.column + 1, "", "a second document; a configuration is one", ""});
      return false;
    }
    if (documents.empty() || !documents[0].IsMap()) {
      problems.push_back({name, 1, 1, "", "holds no map with `sources` and `streams`", ""});
      return false;
    }
    out.value = Converter(name, out, problems).convert(documents[0], Pointer(), {name, 1, 1});
    return true;
  } catch (const YAML::Exception& error) {
    problems.push_back({name, error.mark.line + 1, error.mark.column + 1, "",
                        "YAML: " + error.msg + word_on_tabs(text, error.mark.line), ""});
    return false;
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
  std::vector<Problem> problems;
  try {
    auto value = Converter("", scratch, problems).convert(YAML::Load(text), Pointer(), {});
    if (problems.empty()) return value;
    return fail(ErrorCode::kConfigInvalid, problems[0].message);
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::kConfigInvalid, fmt::format("YAML: {}", error.msg));
  }
}

}  // namespace headrace::server::config
