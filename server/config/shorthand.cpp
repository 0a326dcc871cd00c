#include "server/config/shorthand.h"

#include "server/transform/ops/ops.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

void apply_to(Document& document, const Pointer& at) {
  json& transform = document.value.at(at);
  if (!transform.is_object() || transform.size() != 1) return;
  const std::string name = transform.begin().key();
  json& arguments = transform.begin().value();
  if (arguments.is_object() || arguments.is_null()) return;
  const std::string argument = transform::only_required_argument(name);
  if (argument.empty()) return;
  arguments = json{{argument, json(std::move(arguments))}};
  document.put_inherited(at / name, at / name / argument);
}

}  // namespace

void apply_shorthand(Document& document) {
  const auto streams = document.value.find("streams");
  if (streams == document.value.end() || !streams->is_object()) return;
  for (const auto& [name, stream] : streams->items()) {
    if (!stream.is_object()) continue;
    const auto transforms = stream.find("transforms");
    if (transforms == stream.end() || !transforms->is_array()) continue;
    for (std::size_t i = 0; i < transforms->size(); ++i)
      apply_to(document, Pointer("/streams") / name / "transforms" / std::to_string(i));
  }
}

}  // namespace headrace::server::config
