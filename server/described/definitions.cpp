#include "server/described/definitions.h"

#include <stdexcept>

namespace headrace::server::described {
namespace {

/// Moves the named schemas below `node` to `definitions`.
Schema collect(const Schema& node, Schema& definitions) {
  if (node.is_array()) {
    Schema out = Schema::array();
    for (const Schema& item : node) out.push_back(collect(item, definitions));
    return out;
  }
  if (!node.is_object()) return node;
  Schema body = Schema::object();
  for (const auto& [key, value] : node.items())
    if (key != "x-name") body[key] = key == "default" || key == "enum" ? value : collect(value, definitions);
  if (!node.contains("x-name")) return body;
  const auto name = node["x-name"].get<std::string>();
  Schema reference{{"$ref", "#/definitions/" + name}};
  for (const char* own : {"description", "default"})  // they belong to this use
    if (body.contains(own)) {
      reference[own] = body[own];
      body.erase(own);
    }
  if (definitions.contains(name) && definitions[name] != body)
    throw std::logic_error("two schemas are called " + name);
  definitions[name] = std::move(body);
  return reference;
}

}  // namespace

Schema with_definitions(const Schema& root) {
  Schema definitions = Schema::object();
  Schema out = collect(root, definitions);
  out["definitions"] = std::move(definitions);
  return out;
}

}  // namespace headrace::server::described
