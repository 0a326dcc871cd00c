#include "server/config/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "clientlib/base/nearest.h"
#include "server/config/schema.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

std::vector<std::string> texts(const json& values) {
  std::vector<std::string> out;
  for (const auto& value : values) out.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  return out;
}

bool is_type(const std::string& type, const json& value) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  return type == "null" && value.is_null();
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

// A choice that is written as a map of one key, its name (a transform with arguments).
bool named_by_key(const json& branch) {
  return branch.contains("properties") && branch.value("maxProperties", 0) == 1;
}

// A word that is one of those names, but came without its arguments. Empty: it is not.
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
  return value.is_string() ? nearest(value.get<std::string>(), words) : std::string();
}

// Below which bound, of a value of the right type?
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
    if (node.contains("pattern") &&
        (text.size() > 1000 || !std::regex_search(text, std::regex(node["pattern"].get<std::string>()))))
      return true;
  }
  if (value.is_array() && (value.size() < node.value("minItems", std::size_t{0}) ||
                           value.size() > node.value("maxItems", std::size_t(-1))))
    return true;
  return value.is_object() && (value.size() < node.value("minProperties", std::size_t{0}) ||
                               value.size() > node.value("maxProperties", std::size_t(-1)));
}

// valijson does not say where a key breaks `propertyNames`, only that the map above has a fault: so told from
// there.
void explain_names(const Document& document, const Pointer& at, const json& node, const json& value,
                   const std::string& name, std::vector<Problem>& problems) {
  const json* below = child(node, value, name);
  const json& map = value.at(name);
  if (below == nullptr || !map.is_object()) return;
  const json& schema_of_map = resolve(*below, map);
  if (!schema_of_map.contains("propertyNames")) return;
  const json& rule = resolve(schema_of_map["propertyNames"], json(""));
  for (const auto& [key, ignored] : map.items()) {
    if (outside(rule, json(key)))
      problems.push_back(document.at_key(at / key, fmt::format("\"{}\" is not {}", key, expected(rule))));
  }
}

// A key that belongs into one of the maps beside it: "sharing.wait_for". Empty: there is no such map.
std::string further_down(const json& node, const json& value, const std::string& name) {
  for (const auto& map : known_keys(node)) {
    const json* below = child(node, value, map);
    if (below != nullptr &&
        resolve(*below, json::object()).value("properties", json::object()).contains(name))
      return fmt::format("{}.{}", map, name);
  }
  return {};
}

void explain_keys(const Document& document, const Pointer& at, const json& node, const json& value,
                  std::vector<Problem>& problems) {
  const auto known = known_keys(node);
  for (const auto& [name, ignored] : value.items()) {
    explain_names(document, at / name, node, value, name, problems);
    if (node.value("additionalProperties", json(true)) != json(false) || child(node, value, name) != nullptr)
      continue;
    auto suggestion = nearest(name, known);
    if (suggestion.empty()) suggestion = further_down(node, value, name);
    auto message = suggestion.empty()
                       ? fmt::format("unknown key \"{}\"; known here: {}", name, fmt::join(known, ", "))
                       : fmt::format("unknown key \"{}\"", name);
    problems.push_back(document.at_key(at / name, std::move(message), std::move(suggestion)));
  }
  for (const auto& name : node.value("required", json::array())) {
    if (value.contains(name.get<std::string>())) continue;
    problems.push_back(document.at_key(at, fmt::format("key \"{}\" is missing", name.get<std::string>())));
  }
}

// Of branches told apart by their `type`, none was meant.
bool explain_discriminator(const Document& document, const Pointer& at, const json& node, const json& value,
                           std::vector<Problem>& problems) {
  if (!node.contains("oneOf") || !value.is_object()) return false;
  std::vector<std::string> types;
  for (const auto& branch : node["oneOf"])
    types.push_back(branch["properties"]["type"]["const"].get<std::string>());
  if (!value.contains("type")) {
    problems.push_back(
        document.at_key(at, fmt::format("key \"type\" is missing: one of {}", fmt::join(types, ", "))));
    return true;
  }
  const auto& type = value["type"];
  problems.push_back(
      document.at_value(at / "type", fmt::format("{} is not one of {}", shown(type), fmt::join(types, ", ")),
                        type.is_string() ? nearest(type.get<std::string>(), types) : ""));
  return true;
}

}  // namespace

bool has_type(const json& node, const json& value) {
  const auto type = node.find("type");
  if (type == node.end()) return true;
  if (type->is_string()) return is_type(type->get<std::string>(), value);
  return std::any_of(type->begin(), type->end(),
                     [&](const json& t) { return is_type(t.get<std::string>(), value); });
}

std::string expected(const json& node) {
  if (const auto own = node.find("x-expected"); own != node.end()) return own->get<std::string>();
  for (const char* key : {"anyOf", "oneOf"}) {
    if (const auto options = node.find(key); options != node.end()) {
      std::vector<std::string> all;
      for (const auto& branch : *options) all.push_back(expected(resolve(branch, nullptr)));
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
  if (type == "array") return node.value("minItems", 0) > 0 ? "a list that is not empty" : "a list";
  if (type == "object") return node.value("minProperties", 0) > 0 ? "a map that is not empty" : "a map";
  return type.dump();
}

std::string shown(const json& value) {
  if (value.is_null()) return "nothing";
  if (value.is_object()) return value.empty() ? "an empty map" : "a map";
  if (value.is_array() && value.empty()) return "an empty list";
  auto text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr std::size_t kLongest = 60;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

void explain(const Document& document, const Pointer& at, std::vector<Problem>& problems) {
  std::vector<std::string> names;
  for (Pointer p = at; !p.empty(); p = p.parent_pointer()) names.push_back(p.back());
  const json* value = &document.value;
  const json* asked = &schema();
  const json* node = &resolve(*asked, *value);
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    asked = child(*node, *value, *name);
    if (asked == nullptr) return;  // an unknown key, or a branch not taken: told at the node above
    value = value->is_array() ? &value->at(std::stoul(*name)) : &value->at(*name);
    node = &resolve(*asked, *value);
  }
  if (explain_discriminator(document, at, *node, *value, problems)) return;
  if (node->contains("anyOf") || !has_type(*node, *value) || outside(*node, *value)) {
    // A scalar may have been meant as another of the choices.
    const json& choices = value->is_structured() ? *node : resolve(*asked, json::value_t::discarded);
    if (auto needs = missing_arguments(choices, *value, at.empty() ? "" : at.back()); !needs.empty()) {
      problems.push_back(document.at_value(at, std::move(needs), ""));
      return;
    }
    const bool secret = node->value("x-secret", false);
    problems.push_back(document.at_value(
        at,
        fmt::format("{} is not {}", secret ? "what is there (it is not shown)" : shown(*value),
                    expected(choices)),
        secret ? "" : suggest_value(choices, *value)));
    return;
  }
  if (value->is_object()) explain_keys(document, at, *node, *value, problems);
}

}  // namespace headrace::server::config
