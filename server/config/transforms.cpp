#include "server/config/transforms.h"

#include <nlohmann/json.hpp>

#include "server/transform/op.h"
#include "server/transform/ops/arguments.h"
#include "server/transform/ops/ops.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;
using namespace transform;

/// Of an item that is a name alone: none.
json arguments_of(const json& item) {
  return item.is_string() || item.begin()->is_null() ? json::object() : *item.begin();
}

Transform read_transform(const json& item) {
  return make_op(item.is_string() ? item.get<std::string>() : item.begin().key(), arguments_of(item));
}

DerivedField derived_field(const json& value) {
  DerivedField out;
  out.from = value["from"].get<std::string>();
  out.how.factor = value["factor"].get<std::int32_t>();
  out.how.enlarge = value.value("enlarge", false);
  if (value.contains("interpolation"))
    out.how.interpolation = interpolation().read(value["interpolation"], {});
  return out;
}

MixConfig mix_config(const json& value) {
  MixConfig out;
  const auto alpha = [&value](const char* name) -> std::optional<double> {
    if (!value.contains(name)) return std::nullopt;
    return value[name].is_null() ? 1.0 : value[name].value("alpha", 1.0);
  };
  out.mixup_alpha = alpha("mixup");
  out.cutmix_alpha = alpha("cutmix");
  out.p = value.value("p", out.p);
  out.num_classes = value.value("num_classes", out.num_classes);
  return out;
}

json canonical(const MixConfig& mix) {
  json out = {{"p", mix.p}, {"num_classes", mix.num_classes}};
  if (mix.mixup_alpha) out["mixup"] = {{"alpha", *mix.mixup_alpha}};
  if (mix.cutmix_alpha) out["cutmix"] = {{"alpha", *mix.cutmix_alpha}};
  return out;
}

}  // namespace

StreamPlan read_plan(const json& stream) {
  StreamPlan out;
  for (const auto& item : stream.value("transforms", json::array())) {
    out.chain.transforms.push_back(read_transform(item));
    out.only.push_back(arguments_of(item).value("fields", std::vector<std::string>{}));
  }
  PlanConfig& chain = out.chain;
  const json output = stream.value("output", json::object());
  chain.output.dtype = dtype_from_name(output.value("dtype", std::string("uint8"))).value_or(DType::kUInt8);
  chain.output.layout =
      output.value("layout", std::string("NCHW")) == "NHWC" ? PixelLayout::kNhwc : PixelLayout::kNchw;
  chain.max_pixels = stream.value("max_pixels", chain.max_pixels);
  if (stream.value("resize_passes", std::string()) == "horizontal_first")
    chain.passes = ResizePasses::kHorizontalFirst;
  chain.warnings_are_bad = stream.value("warnings", std::string("keep")) == "bad";
  const json derived = stream.value("derive", json::object());
  for (const auto& [name, value] : derived.items()) out.derived[name] = derived_field(value);
  if (stream.contains("mix")) out.mix = mix_config(stream["mix"]);
  out.on_device = stream.value("device", std::string("cpu")) == "gpu";
  out.select = stream.value("fields", out.select);
  return out;
}

json canonical(const StreamPlan& plan) {
  const PlanConfig& chain = plan.chain;
  auto transforms = json::array();
  for (std::size_t i = 0; i < chain.transforms.size(); ++i) {
    json arguments = chain.transforms[i]->arguments();
    if (i < plan.only.size() && !plan.only[i].empty()) arguments["fields"] = plan.only[i];
    transforms.push_back({{std::string(chain.transforms[i]->name()), std::move(arguments)}});
  }
  const bool nhwc = chain.output.layout == PixelLayout::kNhwc;
  const bool horizontal = chain.passes == ResizePasses::kHorizontalFirst;
  json out = {
      {"transforms", std::move(transforms)},
      {"output", {{"dtype", headrace::name_of(chain.output.dtype)}, {"layout", nhwc ? "NHWC" : "NCHW"}}},
      {"max_pixels", chain.max_pixels},
      {"resize_passes", horizontal ? "horizontal_first" : "pillow_13"},
      {"warnings", chain.warnings_are_bad ? "bad" : "keep"}};
  for (const auto& [name, derived] : plan.derived)
    out["derive"][name] = {{"from", derived.from},
                           {"factor", derived.how.factor},
                           {"enlarge", derived.how.enlarge},
                           {"interpolation", interpolation().write(derived.how.interpolation)}};
  if (plan.mix) out["mix"] = canonical(*plan.mix);
  if (!plan.select.empty()) out["fields"] = plan.select;
  return out;
}

}  // namespace headrace::server::config
