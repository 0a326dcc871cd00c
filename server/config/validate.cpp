// Finds where a document does not conform to the schema, and describes in words what the schema expects
// there.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <regex>

#include "clientlib/base/nearest.h"
#include "server/config/counterparts.h"
#include "server/config/schema.h"

namespace headrace::server::config {
namespace {

using described::as_json;
using nlohmann::json;

std::vector<std::string> texts(const json& values) {
  std::vector<std::string> out;
  for (const auto& value : values) out.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  return out;
}

std::string bounds(const json& node) {
  const auto low = node.find("minimum"), high = node.find("maximum"), above = node.find("exclusiveMinimum");
  const bool no_low = low == node.end(), no_high = high == node.end();
  if (!no_low && !no_high) return fmt::format(" from {} to {}", low->dump(), high->dump());
  std::string out;
  if (above != node.end()) out += fmt::format(" above {}", above->dump());
  if (!no_low) out += fmt::format(" of at least {}", low->dump());
  if (!no_high) out += fmt::format("{} {}", out.empty() ? " of at most" : " and at most", high->dump());
  return out;
}

// "a map with the key size", "a map of dtype, layout", "a map": names the keys if they are few.
std::string expected_map(const json& node) {
  constexpr std::size_t kFew = 6;
  const auto required = texts(node.value("required", json::array()));
  if (!required.empty())
    return fmt::format("a map with the key{} {}", required.size() > 1 ? "s" : "",
                       fmt::join(required, " and "));
  const auto keys = known_keys(node);
  const bool needs_one = node.value("minProperties", 0) > 0;
  if (const int most = node.value("maxProperties", 0); needs_one && most > 1)
    return fmt::format("a map with 1 to {} entries", most);
  if (keys.empty() || keys.size() > kFew) return needs_one ? "a map with at least one entry" : "a map";
  return fmt::format("a map {} {}", needs_one ? "with at least one of" : "of", fmt::join(keys, ", "));
}

std::string expected(const json& node) {
  if (const auto own = node.find("x-expected"); own != node.end()) return own->get<std::string>();
  for (const char* key : {"anyOf", "oneOf"}) {
    if (const auto options = node.find(key); options != node.end()) {
      std::vector<std::string> all;
      for (const auto& branch : *options)
        if (auto words = expected(resolve(branch, nullptr));
            std::find(all.begin(), all.end(), words) == all.end())
          all.push_back(std::move(words));
      return fmt::format("{}", fmt::join(all, ", or "));
    }
  }
  if (const auto words = node.find("enum"); words != node.end())
    return (words->size() > 1 ? "one of " : "") + fmt::format("{}", fmt::join(texts(*words), ", "));
  auto type = node.value("type", json("value"));
  if (type.is_array()) type = type[0];
  if (type == "integer") return "a whole number" + bounds(node);
  if (type == "number") return "a number" + bounds(node);
  if (type == "boolean") return "true or false";
  if (type == "string") return "text";
  if (type == "array") return node.value("minItems", 0) > 0 ? "a list with at least one entry" : "a list";
  if (type == "object") return expected_map(node);
  return type.dump();
}

std::string shown(const json& value) {
  if (value.is_null()) return "nothing";
  if (value.is_object()) return value.empty() ? "an empty map" : "a map";
  if (value.is_array() && value.empty()) return "an empty list";
  auto text = as_json(value);
  constexpr std::size_t kLongest = 60;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

// Whether a choice is written as a map with one key, its name (a transform with arguments).
bool named_by_key(const json& branch) {
  return branch.contains("properties") && branch.value("maxProperties", 0) == 1;
}

// The message for a word that names such a choice but lacks its required arguments. Empty: it does not.
std::string missing_arguments(const json& node, const json& value, const std::string& key) {
  if (!value.is_string() || !node.contains("anyOf")) return {};
  const auto& name = value.get_ref<const std::string&>();
  for (const auto& branch : node["anyOf"]) {
    if (!named_by_key(branch) || !branch["properties"].contains(name)) continue;
    const json& arguments = resolve(branch["properties"][name], json::object());
    auto needed = texts(arguments.value("required", json::array()));
    std::string words = fmt::format("{}", fmt::join(needed, " and "));
    if (needed.empty() && arguments.value("minProperties", 0) > 0) {
      needed.push_back(arguments.at("properties").begin().key());
      words = arguments.value("x-expected", needed.front());
    }
    if (needed.empty()) return {};
    const bool item = key.find_first_not_of("0123456789") == std::string::npos;
    return fmt::format("{} needs {}: write `{} {}{}: {{{}: ...}}{}`", shown(value), words,
                       item ? "-" : key + ":", item ? "" : "{", name, fmt::join(needed, ": ..., "),
                       item ? "" : "}");
  }
  return {};
}

bool conforms(const json& schema, const json& value);

// "[1]" or "{size: 1}": the list or map that `value` was probably meant to be the only entry of. Empty: the
// schema has no such list or map, several keys accept the value, or the map needs more than a key: its
// x-expected then says what. Booleans are not wrapped: `cache: true` means no key of the map.
std::string suggest_wrapped(const json& node, const json& value) {
  constexpr std::size_t kLongest = 60;
  const std::string text = value.is_string() ? value.get<std::string>() : as_json(value);
  if (value.is_null() || value.is_boolean() || text.size() > kLongest) return {};
  if (const auto items = node.find("items"); items != node.end())
    return (value.is_string() || value.is_object()) && conforms(*items, value) ? "[" + text + "]" : "";
  if (node.contains("x-expected")) return {};
  const auto required = texts(node.value("required", json::array()));
  std::vector<std::string> keys;
  const auto properties = node.value("properties", json::object());
  for (const auto& [name, schema] : properties.items()) {
    const bool known_word = !value.is_string() || resolve(schema, value).contains("enum");
    const bool needed =
        required.empty() || std::find(required.begin(), required.end(), name) != required.end();
    if (needed && known_word && conforms(schema, value)) keys.push_back(name);
  }
  if (keys.size() != 1 || required.size() > 1 || value.is_object()) return {};
  return fmt::format("{{{}: {}}}", keys.front(), text);
}

std::string suggest_value(const json& node, const json& value) {
  std::vector<std::string> words;
  const auto add = [&](const json& n) {
    if (const auto found = n.find("enum"); found != n.end())
      for (auto& word : texts(*found)) words.push_back(std::move(word));
    if (named_by_key(n))
      for (const auto& [name, ignored] : n["properties"].items()) words.push_back(name);
  };
  add(node);
  for (const char* key : {"anyOf", "oneOf"})
    if (const auto found = node.find(key); found != node.end())
      for (const auto& branch : *found) add(branch);
  const bool duration = node.value("x-expected", "").starts_with("a duration");
  if (duration && value.is_number_unsigned()) return value.dump() + "s";
  std::string near = value.is_string() ? nearest(value.get<std::string>(), words) : "";
  if (!near.empty()) return near;
  const json* forms = branches(node);
  if (forms == nullptr) return suggest_wrapped(node, value);
  for (const auto& form : *forms)
    if (auto wrapped = suggest_wrapped(resolve(form, json::value_t::discarded), value); !wrapped.empty())
      return wrapped;
  return {};
}

const std::regex& compiled(const std::string& pattern) {
  thread_local std::map<std::string, std::regex> known;
  const auto found = known.find(pattern);
  return found != known.end() ? found->second : known.emplace(pattern, pattern).first->second;
}

// Whether a value of the right type is out of bounds.
bool outside(const json& node, const json& value) {
  if (const auto words = node.find("enum");
      words != node.end() && std::find(words->begin(), words->end(), value) == words->end())
    return true;
  if (const auto only = node.find("const"); only != node.end() && *only != value) return true;
  if (value.is_number()) {
    if (node.contains("minimum") && value < node["minimum"]) return true;
    if (node.contains("maximum") && value > node["maximum"]) return true;
    if (node.contains("exclusiveMinimum") && value <= node["exclusiveMinimum"]) return true;
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() < node.value("minLength", std::size_t{0})) return true;
    if (const auto pattern = node.find("pattern");
        pattern != node.end() && (text.size() > 1000 || !std::regex_search(text, compiled(*pattern))))
      return true;
  }
  if (value.is_array() && (value.size() < node.value("minItems", std::size_t{0}) ||
                           value.size() > node.value("maxItems", std::size_t(-1))))
    return true;
  return value.is_object() && (value.size() < node.value("minProperties", std::size_t{0}) ||
                               value.size() > node.value("maxProperties", std::size_t(-1)));
}

// The maps that may have the key `name`, from `node` on, as messages call them: "output", "sources.NAME.io",
// "transforms[].resize".
void find_parents(const json& start, const std::string& name, const std::string& path,
                  std::vector<std::string>& out) {
  const json& node = resolve(start, json::value_t::discarded);
  if (const json* choices = branches(node)) {
    for (const json& choice : *choices) find_parents(choice, name, path, out);
    return;
  }
  const auto properties = node.value("properties", json::object());
  if (properties.contains(name) && std::find(out.begin(), out.end(), path) == out.end()) out.push_back(path);
  const std::string lead = path.empty() ? "" : path + ".";
  for (const auto& [key, below] : properties.items()) find_parents(below, name, lead + key, out);
  if (const auto others = node.find("additionalProperties"); others != node.end() && others->is_object())
    find_parents(*others, name, lead + "NAME", out);
  if (const auto items = node.find("items"); items != node.end())
    find_parents(*items, name, path + "[]", out);
}

// "it belongs under `output`": one or two maps, below `node` or anywhere. Empty: there are none, or too many.
std::string parent_hint(const json& node, const std::string& name) {
  constexpr std::size_t kMost = 2;
  std::vector<std::string> homes;
  find_parents(node, name, "", homes);
  std::erase(homes, "");
  if (homes.empty() || homes.size() > kMost) return {};
  return fmt::format("it belongs under `{}`", fmt::join(homes, "` or `"));
}

// "only sources of type manifest have it": types beside the one that `node` describes. Empty: `node` is no
// source's, or there are none or too many.
std::string type_hint(const json& node, const std::string& name) {
  constexpr std::size_t kMost = 5;
  if (!node.value("properties", json::object()).contains("type")) return {};
  std::vector<std::string> types;
  for (const json& source : schema().at("definitions").at("source").at("oneOf"))
    if (const json& keys = source.at("properties"); keys.contains(name))
      types.push_back(keys.at("type").at("const").get<std::string>());
  if (types.empty() || types.size() > kMost) return {};
  return fmt::format("only sources of type {} have it", fmt::join(types, " or "));
}

// Reports keys that are not indented below their own map, which then seems empty. Returns `value` without
// them.
json without_misindented(Document& document, const Pointer& at, const json& node, const json& value) {
  json rest = value;
  for (const auto& [name, empty] : value.items()) {
    const json* schema = empty.is_null() ? child(node, value, name) : nullptr;
    if (schema == nullptr) continue;
    const auto known = known_keys(*schema);
    const auto properties = node.value("properties", json::object());
    std::vector<std::pair<Place, std::string>> slipped;
    for (const auto& [key, ignored] : value.items())
      if (const Place place = document.key_place(at / key);
          key != name && std::binary_search(known.begin(), known.end(), key) && !properties.contains(key) &&
          place.line > document.key_place(at / name).line)
        slipped.emplace_back(place, key);
    if (slipped.empty()) continue;
    std::sort(slipped.begin(), slipped.end(),
              [](const auto& a, const auto& b) { return a.first.line < b.first.line; });
    document.faults.mark(at / name);
    rest.erase(name);
    std::vector<std::string> keys;
    for (const auto& [place, key] : slipped) {
      document.faults.mark(at / key);
      rest.erase(key);
      keys.push_back(key);
    }
    document.wrong_key(at / keys.front(), fmt::format("`{}` must be indented further than `{}`: {} of it",
                                                      fmt::join(keys, "`, `"), name,
                                                      keys.size() > 1 ? "they are keys" : "it is a key"));
  }
  return rest;
}

void check_keys(Document& document, const Pointer& at, const json& node, const json& value) {
  const auto known = known_keys(node);
  if (const auto rule = node.find("propertyNames"); rule != node.end()) {
    const json& name_rule = resolve(*rule, json(""));
    for (const auto& [name, ignored] : value.items())
      if (outside(name_rule, json(name)))
        document.wrong_key(at / name, fmt::format("\"{}\" is not {}", name, expected(name_rule)));
  }
  for (const auto& [name, ignored] : value.items()) {
    if (node.value("additionalProperties", json(true)) != json(false) || child(node, value, name) != nullptr)
      continue;
    const auto meant = counterpart(path_words(), name);
    const bool is_key = std::binary_search(known.begin(), known.end(), meant) && !value.contains(meant);
    auto suggestion = is_key ? meant : nearest(name, known);
    const auto required = node.value("required", json::array());
    const bool fills_gap = !value.contains(suggestion) &&
                           std::find(required.begin(), required.end(), suggestion) != required.end();
    auto home = fills_gap && suggestion != meant ? "" : type_hint(node, name);
    if (home.empty() && !fills_gap) {
      home = parent_hint(node, name);
      if (!home.empty()) suggestion.clear();
    }
    if (home.empty() && suggestion.empty()) home = parent_hint(schema(), name);
    for (const auto* torch : {&loader_arguments(), &torchvision_words()})
      if (home.empty() && suggestion.empty()) home = counterpart(*torch, name);
    if (home.empty() && suggestion.empty()) home = fmt::format("known here: {}", fmt::join(known, ", "));
    document.wrong_key(at / name, fmt::format("unknown key \"{}\"{}{}", name, home.empty() ? "" : "; ", home),
                       std::move(suggestion));
  }
  for (const auto& name : node.value("required", json::array())) {
    if (value.contains(name.get<std::string>())) continue;
    document.wrong_key(at, fmt::format("key \"{}\" is missing", name.get<std::string>()));
  }
}

// Reports a `type` that selects none of the branches.
bool wrong_type(Document& document, const Pointer& at, const json& node, const json& value) {
  if (!node.contains("oneOf") || !value.is_object()) return false;
  std::vector<std::string> types;
  for (const auto& branch : node["oneOf"])
    types.push_back(branch["properties"]["type"]["const"].get<std::string>());
  if (!value.contains("type")) {
    const auto is_key = [&](const std::string& name) {
      return std::any_of(node["oneOf"].begin(), node["oneOf"].end(),
                         [&](const json& branch) { return branch["properties"].contains(name); });
    };
    for (const auto& [name, ignored] : value.items())
      if (auto meant = nearest(name, std::vector<std::string>{"type"}); !meant.empty() && !is_key(name)) {
        document.wrong_key(at / name, fmt::format("unknown key \"{}\"", name), std::move(meant));
        return true;
      }
    document.wrong_key(at, fmt::format("key \"type\" is missing: one of {}", fmt::join(types, ", ")));
    return true;
  }
  const auto& type = value["type"];
  document.wrong(at / "type", fmt::format("{} is not one of {}", shown(type), fmt::join(types, ", ")),
                 type.is_string() ? nearest(type.get<std::string>(), types) : "");
  return true;
}

void check(Document& document, const Pointer& at, const json& asked, const json& value);

bool conforms(const json& schema, const json& value) {
  Document trial("");
  check(trial, Pointer(), schema, value);
  return trial.faults.all().empty();
}

/// `asked`: the schema of the value at `at`.
void check(Document& document, const Pointer& at, const json& asked, const json& value) {
  // Resolved without a value: the choices themselves.
  const json& any = resolve(asked, json::value_t::discarded);
  if (const auto forms = any.find("anyOf");
      forms != any.end() &&
      std::any_of(forms->begin(), forms->end(), [&](const json& form) { return conforms(form, value); }))
    return;
  const json& node = resolve(asked, value);
  if (value.is_object())
    if (const json rest = without_misindented(document, at, node, value); rest.size() < value.size()) {
      if (!rest.empty()) check(document, at, asked, rest);
      return;
    }
  if (wrong_type(document, at, node, value)) return;
  if (node.contains("anyOf") || !has_type(node, value) || outside(node, value)) {
    // A scalar may have been meant as another one of the choices.
    const json& choices = value.is_structured() ? node : any;
    if (auto needs = missing_arguments(choices, value, at.empty() ? "" : at.back()); !needs.empty()) {
      document.wrong(at, std::move(needs));
      return;
    }
    const bool secret = node.value("x-secret", false);
    std::string hint = node.value("x-hint", "");
    if (hint.empty() && value.is_string()) hint = counterpart(torchvision_words(), value.get<std::string>());
    if (value == 0 && expected(choices).starts_with("a size")) hint = "write 0B";
    document.wrong(at,
                   fmt::format("{} is not {}{}{}", secret ? "what is there (it is not shown)" : shown(value),
                               expected(choices), hint.empty() ? "" : "; ", hint),
                   secret || !hint.empty() ? "" : suggest_value(choices, value));
    return;
  }
  if (value.is_object()) {
    check_keys(document, at, node, value);
    for (const auto& [name, below] : value.items())
      if (const json* schema = child(node, value, name)) check(document, at / name, *schema, below);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i)
      if (const json* schema = child(node, value, ""))
        check(document, at / std::to_string(i), *schema, value[i]);
  }
}

}  // namespace

void validate(Document& document) {
  check(document, Pointer(), schema(), document.value);
}

}  // namespace headrace::server::config
