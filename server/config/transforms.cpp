#include "server/config/transforms.h"

#include "server/config/augmentations.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;
using namespace transform;

Size size_of_json(const json& value) {
  if (value.is_array()) return {value[0].get<std::int32_t>(), value[1].get<std::int32_t>()};
  return {value.get<std::int32_t>(), value.get<std::int32_t>()};
}

Interpolation interpolation(const json& value) {
  const auto text = value.value("interpolation", std::string("bilinear"));
  if (text == "bicubic") return Interpolation::kBicubic;
  return text == "nearest" ? Interpolation::kNearest : Interpolation::kBilinear;
}

const char* name_of(Interpolation how) {
  if (how == Interpolation::kBicubic) return "bicubic";
  return how == Interpolation::kNearest ? "nearest" : "bilinear";
}

PaddingMode padding_mode(const std::string& text) {
  if (text == "edge") return PaddingMode::kEdge;
  if (text == "reflect") return PaddingMode::kReflect;
  return text == "symmetric" ? PaddingMode::kSymmetric : PaddingMode::kConstant;
}

const char* name_of(PaddingMode mode) {
  switch (mode) {
    case PaddingMode::kEdge:
      return "edge";
    case PaddingMode::kReflect:
      return "reflect";
    case PaddingMode::kSymmetric:
      return "symmetric";
    case PaddingMode::kConstant:
      break;
  }
  return "constant";
}

Resize resize(const json& value) {
  Resize out;
  if (value["size"].is_array()) {
    out.size = size_of_json(value["size"]);
  } else {
    out.shorter = value["size"].get<std::int32_t>();
  }
  out.max_size = value.value("max_size", 0);
  out.interpolation = interpolation(value);
  return out;
}

RandomResizedCrop random_resized_crop(const json& value) {
  RandomResizedCrop out;
  out.size = size_of_json(value["size"]);
  if (value.contains("scale")) {
    out.scale_min = value["scale"][0].get<double>();
    out.scale_max = value["scale"][1].get<double>();
  }
  if (value.contains("ratio")) {
    out.ratio_min = value["ratio"][0].get<double>();
    out.ratio_max = value["ratio"][1].get<double>();
  }
  out.interpolation = interpolation(value);
  return out;
}

RandomCrop random_crop(const json& value) {
  RandomCrop out;
  out.size = size_of_json(value["size"]);
  if (value.contains("padding")) {
    const json& padding = value["padding"];
    const auto at = [&](std::size_t i) {
      return padding.is_array() ? padding[i % padding.size()].get<std::int32_t>()
                                : padding.get<std::int32_t>();
    };
    out.left = at(0);
    out.top = at(1);
    out.right = at(2);
    out.bottom = at(3);
  }
  out.pad_if_needed = value.value("pad_if_needed", false);
  if (value.contains("fill")) {
    const json& fill = value["fill"];
    for (std::size_t i = 0; i < 3; ++i)
      out.fill[i] = fill.is_array() ? fill[i].get<std::uint8_t>() : fill.get<std::uint8_t>();
  }
  out.mode = padding_mode(value.value("padding_mode", std::string()));
  return out;
}

Transform read_transform(const json& item) {
  const std::string name = item.is_string() ? item.get<std::string>() : item.begin().key();
  const json arguments = item.is_string() || item.begin()->is_null() ? json::object() : *item.begin();
  if (name == "resize") return resize(arguments);
  if (name == "center_crop") return CenterCrop{size_of_json(arguments["size"])};
  if (name == "random_resized_crop") return random_resized_crop(arguments);
  if (name == "random_crop") return random_crop(arguments);
  if (name == "random_horizontal_flip") return RandomHorizontalFlip{arguments.value("p", 0.5)};
  if (name == "random_vertical_flip") return RandomVerticalFlip{arguments.value("p", 0.5)};
  if (name == "random_rotate90") return RandomRotate90{};
  if (name == "to_y") return ToY{};
  if (auto augmentation = read_augmentation(name, arguments)) return *std::move(augmentation);
  return Normalize{arguments["mean"].get<std::vector<double>>(), arguments["std"].get<std::vector<double>>()};
}

json pair(const Size& size) {
  return {size.height, size.width};
}

struct Canonical {
  json operator()(const Resize& t) const {
    json size = t.shorter > 0 ? json(t.shorter) : pair(t.size);
    return {
        {"resize",
         {{"size", std::move(size)}, {"max_size", t.max_size}, {"interpolation", name_of(t.interpolation)}}}};
  }
  json operator()(const CenterCrop& t) const { return {{"center_crop", {{"size", pair(t.size)}}}}; }
  json operator()(const RandomResizedCrop& t) const {
    return {{"random_resized_crop",
             {{"size", pair(t.size)},
              {"scale", json::array({t.scale_min, t.scale_max})},
              {"ratio", json::array({t.ratio_min, t.ratio_max})},
              {"interpolation", name_of(t.interpolation)}}}};
  }
  json operator()(const RandomCrop& t) const {
    return {{"random_crop",
             {{"size", pair(t.size)},
              {"padding", json::array({t.left, t.top, t.right, t.bottom})},
              {"pad_if_needed", t.pad_if_needed},
              {"fill", json::array({t.fill[0], t.fill[1], t.fill[2]})},
              {"padding_mode", name_of(t.mode)}}}};
  }
  json operator()(const RandomHorizontalFlip& t) const { return {{"random_horizontal_flip", {{"p", t.p}}}}; }
  json operator()(const RandomVerticalFlip& t) const { return {{"random_vertical_flip", {{"p", t.p}}}}; }
  json operator()(const RandomRotate90&) const { return {{"random_rotate90", json::object()}}; }
  json operator()(const ColorJitter& t) const { return canonical(t); }
  json operator()(const RandomGrayscale& t) const { return canonical(t); }
  json operator()(const RandAugment& t) const { return canonical(t); }
  json operator()(const TrivialAugmentWide& t) const { return canonical(t); }
  json operator()(const GaussianBlur& t) const { return canonical(t); }
  json operator()(const RandomErasing& t) const { return canonical(t); }
  json operator()(const ToY&) const { return {{"to_y", json::object()}}; }
  json operator()(const NotHere&) const { return json::object(); }
  json operator()(const Normalize& t) const { return {{"normalize", {{"mean", t.mean}, {"std", t.std}}}}; }
};

std::vector<std::string> fields_of(const json& item) {
  if (item.is_string() || !item.begin()->is_object()) return {};
  return item.begin()->value("fields", std::vector<std::string>{});
}

DerivedField derived_field(const json& value) {
  DerivedField out;
  out.from = value["from"].get<std::string>();
  out.how.factor = value["factor"].get<std::int32_t>();
  out.how.enlarge = value.value("enlarge", false);
  if (value.contains("interpolation")) out.how.interpolation = interpolation(value);
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
    out.only.push_back(fields_of(item));
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
    json transform = std::visit(Canonical{}, chain.transforms[i]);
    if (i < plan.only.size() && !plan.only[i].empty()) transform.begin().value()["fields"] = plan.only[i];
    transforms.push_back(std::move(transform));
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
                           {"interpolation", name_of(derived.how.interpolation)}};
  if (plan.mix) out["mix"] = canonical(*plan.mix);
  if (!plan.select.empty()) out["fields"] = plan.select;
  return out;
}

}  // namespace headrace::server::config
