#include "server/config/schema.h"

#include <algorithm>

#include "server/described/definitions.h"
#include "server/described/names.h"
#include "server/transform/ops/ops.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

const json& follow(const json& node) {
  const json* at = &node;
  while (at->is_object() && at->contains("$ref"))
    at = &schema().at(Pointer(at->at("$ref").get<std::string>().substr(1)));
  return *at;
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

}  // namespace

const json* branches(const json& node) {
  for (const char* key : {"anyOf", "oneOf"})
    if (const auto found = node.find(key); found != node.end()) return &*found;
  return nullptr;
}

bool has_type(const json& node, const json& value) {
  const auto type = node.find("type");
  if (type == node.end()) return true;
  if (type->is_string()) return is_type(type->get<std::string>(), value);
  return std::any_of(type->begin(), type->end(),
                     [&](const json& t) { return is_type(t.get<std::string>(), value); });
}

namespace {

/// A stream's `source` is required here, and every transform's arguments are a map: `extends` and shorthands
/// are replaced before a configuration is checked.
described::Schema checked_schema() {
  using namespace described;
  auto streams = map(named("stream", object<StreamConfig>()), 1, name()).schema;
  streams["maxProperties"] = kMaxStreams;
  const auto sources = map(plain<Json>(source_schema()), 1, name()).schema;
  const Schema root{
      {"$schema", "http://json-schema.org/draft-07/schema#"},
      {"title", "Headrace server configuration"},
      {"description",
       "In an editor with yaml-language-server: # yaml-language-server: $schema=headrace.schema.json"},
      {"type", "object"},
      {"required", {"sources", "streams"}},
      {"additionalProperties", false},
      {"properties",
       {{"server", object<ServerConfig>().schema}, {"sources", sources}, {"streams", std::move(streams)}}}};
  return with_definitions(root);
}

}  // namespace

std::string schema_text() {
  auto out = checked_schema();
  auto& stream = out.at("definitions").at("stream");
  const described::Schema required{{"required", stream.at("required")}};
  stream.erase("required");
  stream["if"] = {{"not", {{"required", {"extends"}}}}};
  stream["then"] = required;
  for (auto& [name, transform] :
       out.at("definitions").at("transform").at("anyOf").at(1).at("properties").items())
    if (const std::string argument = transform::only_required_argument(name); !argument.empty())
      transform = {{"anyOf", {transform, transform.at("properties").at(argument)}}};
  return out.dump(2) + "\n";
}

const json& schema() {
  static const json parsed = json::parse(checked_schema().dump());
  return parsed;
}

const json& resolve(const json& start, const json& value) {
  const json* node = &follow(start);
  while (const json* options = branches(*node)) {
    const json* chosen = nullptr;
    for (const auto& option : *options) {
      const json& branch = follow(option);
      const auto properties = branch.find("properties");
      const bool marked = properties != branch.end() && properties->contains("type") &&
                          properties->at("type").contains("const");
      const bool fits = marked ? value.is_object() && value.contains("type") &&
                                     value["type"] == properties->at("type")["const"]
                               : has_type(branch, value);
      if (fits) chosen = &branch;
    }
    if (chosen == nullptr) return *node;
    node = chosen;
  }
  return *node;
}

const json* child(const json& node, const json& value, const std::string& name) {
  if (value.is_array()) {
    const auto items = node.find("items");
    return items == node.end() ? nullptr : &*items;
  }
  if (const auto properties = node.find("properties"); properties != node.end() && properties->contains(name))
    return &properties->at(name);
  const auto others = node.find("additionalProperties");
  return others != node.end() && others->is_object() ? &*others : nullptr;
}

std::vector<std::string> known_keys(const json& start) {
  const json& node = follow(start);
  std::vector<std::string> out;
  if (const auto properties = node.find("properties"); properties != node.end())
    for (const auto& [name, ignored] : properties->items()) out.push_back(name);
  if (const json* options = branches(node))
    for (const auto& option : *options)
      for (auto& name : known_keys(option)) out.push_back(std::move(name));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace headrace::server::config
