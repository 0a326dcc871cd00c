#include "server/transform/ops/ops.h"

#include <stdexcept>

#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {

/// Every transform; each is in the file of its name, flips are in random_flips.cpp.
// clang-format off
#define HEADRACE_OPS(each) \
  each(resize) \
  each(center_crop) \
  each(random_resized_crop) \
  each(random_crop) \
  each(random_horizontal_flip) \
  each(random_vertical_flip) \
  each(random_rotate90) \
  each(color_jitter) \
  each(random_grayscale) \
  each(rand_augment) \
  each(trivial_augment_wide) \
  each(gaussian_blur) \
  each(random_erasing) \
  each(to_y) \
  each(normalize)
// clang-format on

namespace ops {
#define HEADRACE_DECLARE(name) OpType name();
HEADRACE_OPS(HEADRACE_DECLARE)
}  // namespace ops

namespace {

const std::vector<OpType>& all() {
#define HEADRACE_TYPE(name) ops::name(),
  static const std::vector<OpType> types{HEADRACE_OPS(HEADRACE_TYPE)};
  return types;
}

}  // namespace

Transform make_op(const std::string& name, const nlohmann::json& arguments,
                  const described::Reading& reading) {
  for (const OpType& type : all())
    if (type.name == name) return type.make(arguments, reading);
  throw std::out_of_range("no transform is called " + name);
}

std::string only_required_argument(const std::string& name) {
  for (const OpType& type : all()) {
    const auto required = type.schema.find("required");
    if (type.name == name && required != type.schema.end() && required->size() == 1)
      return required->front().get<std::string>();
  }
  return {};
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const OpType& type : all()) names.push_back(type.name);
  return names;
}

Transform make_op(const std::string& name) {
  return make_op(name, nlohmann::json::object());
}

nlohmann::ordered_json chain_item_schema(const nlohmann::ordered_json& common) {
  using described::Schema;
  Schema names = Schema::array(), properties = Schema::object();
  std::string expected;
  for (const OpType& type : all()) {
    Schema schema = type.schema;
    schema["properties"].update(common);
    if (!schema.contains("required") && !schema.contains("minProperties")) {
      schema["type"] = {"object", "null"};
      names.push_back(type.name);
    }
    properties[type.name] = std::move(schema);
  }
  for (std::size_t i = 0; i < names.size(); ++i)
    expected += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i].get<std::string>();
  return described::name_or_map(
      std::move(names), std::move(properties),
      "one transform with its arguments, as in `resize: {size: 224}` (each is a list item of its own)",
      expected);
}

}  // namespace headrace::server::transform
