#include "server/config/plan_keys.h"

#include <fmt/format.h>

#include "server/described/names.h"
#include "server/transform/op.h"
#include "server/transform/ops/arguments.h"
#include "server/transform/ops/ops.h"

namespace headrace::server::config {

using namespace described;
using namespace transform;

namespace {

/// Each transform, and the fields that it applies to.
Key<StreamPlan> transforms() {
  Schema item = chain_item_schema({{"fields", fields().schema}});
  item["x-name"] = "transform";
  return {"transforms",
          {{"type", "array"},
           {"items", std::move(item)},
           {"description",
            "Names and meaning are those of torchvision.transforms.v2. A transform applies to all images of "
            "a sample, unless its key `fields` limits it to some."}},
          false,
          [](StreamPlan& plan, const Json& value, const Reading& reading) {
            for (std::size_t i = 0; i < value.size(); ++i) {
              const Json& one = value[i];
              const bool bare = one.is_string() || one.begin()->is_null();
              const Json arguments = bare ? Json::object() : *one.begin();
              const std::string name = one.is_string() ? one.get<std::string>() : one.begin().key();
              plan.chain.transforms.push_back(
                  make_op(name, arguments, reading.below(std::to_string(i)).below(name)));
              plan.only.push_back(arguments.value("fields", std::vector<std::string>{}));
            }
          },
          [](const StreamPlan& plan, Json& map) {
            Json out = Json::array();
            for (std::size_t i = 0; i < plan.chain.transforms.size(); ++i) {
              Json arguments = plan.chain.transforms[i]->arguments();
              if (i < plan.only.size() && !plan.only[i].empty()) arguments["fields"] = plan.only[i];
              out.push_back({{std::string(plan.chain.transforms[i]->name()), std::move(arguments)}});
            }
            map["transforms"] = std::move(out);
          }};
}

Description<Output> output() {
  return {"",
          "",
          {key("dtype", &Output::dtype,
               dtype({DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32}),
               "Type of image values. Floats are pixels divided by 255, then normalized if there is "
               "`normalize`, with which the default is float32."),
           key("layout", &Output::layout,
               word<PixelLayout>({{"NCHW", PixelLayout::kNchw}, {"NHWC", PixelLayout::kNhwc}}),
               "Order of an image batch's dimensions: channels first or last.")}};
}

Description<DerivedField> derived_field() {
  using Self = DerivedField;
  return {"",
          "",
          {required("from", &Self::from, field()),
           within(&Self::how,
                  required("factor", &Derivation::factor, integer<std::int32_t>(2, 64),
                           "Sides are divided by this number. First the original is cut to a multiple of it, "
                           "and the sample's other images by the same amount.")),
           within(&Self::how, key("interpolation", &Derivation::interpolation, interpolation())),
           within(&Self::how, key("enlarge", &Derivation::enlarge, boolean(),
                                  "Resize the result back to the original's size, which SRCNN expects."))}};
}

struct Alpha {
  double alpha = 1;

  static Description<Alpha> description() {
    return {"",
            "",
            {key("alpha", &Alpha::alpha, number(0.001, 1000), "Lambda is drawn from Beta(alpha, alpha).")}};
  }
};

Codec<double> alpha() {
  return named("mix_alpha", expecting("a map with the key alpha",
                                      converted<double, Alpha>(
                                          object_or_null<Alpha>(), [](const Alpha& a) { return a.alpha; },
                                          [](double value) { return Alpha{value}; })));
}

Description<MixConfig> mix() {
  using Self = MixConfig;
  return {"",
          "Each image is mixed with its neighbor in the epoch's order, after the transforms. If both mixup "
          "and cutmix are given, each has probability one half. Labels become float32 (num_classes), each "
          "class's share.",
          {optional("mixup", &Self::mixup_alpha, alpha(),
                    "As torchvision.transforms.v2.MixUp, with a lambda per sample."),
           optional("cutmix", &Self::cutmix_alpha, alpha(),
                    "As torchvision.transforms.v2.CutMix, with a lambda and a box per sample."),
           key("p", &Self::p, fraction(), "Probability that a sample is mixed."),
           without_default(key("num_classes", &Self::num_classes, integer<std::int32_t>(1, 1'000'000),
                               "Default: as many as the source names."))},
          [](const Self& mix, const Json&, const Reading& reading) {
            if (!mix.mixup_alpha && !mix.cutmix_alpha)
              reading.wrong_key("", "needs mixup, cutmix or both of them");
          }};
}

Codec<bool> device() {
  auto out = word<bool>({{"cpu", false}, {"gpu", true}});
  out.schema["x-hint"] = "the trainer chooses its GPU: Loader(device=\"cuda:0\")";
  return out;
}

/// Omitted from the canonical form if it is empty.
template <class S>
Key<S> unless_empty(Key<S> key) {
  key.schema.erase("default");
  key.write = [write = key.write, name = key.name](const S& from, Json& map) {
    write(from, map);
    if (map[name].empty()) map.erase(name);
  };
  return key;
}

}  // namespace

std::vector<Key<StreamPlan>> plan_keys() {
  using Self = StreamPlan;
  const auto chain = [](auto key) { return within(&Self::chain, std::move(key)); };
  return {
      unless_empty(
          key("fields", &Self::select, fields(),
              "The fields that batches have, besides the label. Default: all that the source has and "
              "all derived ones.")),
      unless_empty(key("derive", &Self::derived, map(object(derived_field()), 0, field()),
                       "Fields made from the source's images, before the transforms: smaller versions for "
                       "super-resolution.")),
      transforms(),
      chain(without_default(key("output", &PlanConfig::output, object(output())))),
      key("device", &Self::on_device, device(),
          "Where the last transforms (flips, 90-degree rotations, colors, normalize, constant "
          "random_erasing), dtype and layout are "
          "computed. gpu: on the trainer's device; the batches are the same, bit for bit, and only loaders "
          "with a device can open the stream. Cannot be combined with mix, or with random_erasing with "
          "random values."),
      optional("mix", &Self::mix, expecting("a map with the key mixup or cutmix", object(mix()))),
      chain(key("warnings", &PlanConfig::warnings_are_bad, word<bool>({{"keep", false}, {"bad", true}}),
                "An image that libjpeg repairs, or a progressive JPEG without all of its scans: keep it and "
                "count a warning, or treat it as bad.")),
      chain(key(
          "resize_passes", &PlanConfig::passes,
          word<ResizePasses>(
              {{"pillow_13", ResizePasses::kPillow13}, {"horizontal_first", ResizePasses::kHorizontalFirst}}),
          "Which Pillow a resize equals: 13 and later, or earlier versions (pixels differ by at most one).")),
      chain(key("max_pixels", &PlanConfig::max_pixels, integer<std::uint64_t>(1, 1'000'000'000),
                "Larger images, read or between two transforms, are bad samples. They are refused before "
                "memory is allocated."))};
}

namespace {

/// Reports the errors of compiling a field's chain. `whole`: the chain has all transforms, not only those
/// before an invalid one.
bool check_chain(PlanConfig config, const std::string& field, bool whole, const Json& map,
                 const Reading& reading) {
  Values values;
  for (const auto& transform : config.transforms) transform->add_to(values);
  if (!values.mean.empty()) config.channels = values.mean.size() == 1 ? 1 : 3;
  std::optional<std::size_t> culprit;
  const auto compiled = Plan::compile(config, &culprit);
  if (compiled || (!culprit && !whole)) return true;
  auto message = compiled.error().message;
  if (constexpr std::string_view kLead = "transforms: "; message.starts_with(kLead))
    message.erase(0, kLead.size());
  if (!field.empty()) message = fmt::format("field {}: {}", field, message);
  if (culprit) {
    reading.wrong(Pointer("/transforms") / std::to_string(*culprit), std::move(message));
  } else {
    reading.wrong_key(map.contains("transforms") ? "transforms" : "", std::move(message));
  }
  return false;
}

}  // namespace

void check_plan(const StreamPlan& plan, const Json& map, const Reading& reading) {
  const bool known_output = reading.sound({"output"});
  // Without `transforms`, another key may be a misspelling of it.
  const bool whole = reading.sound({"transforms"}) && (map.contains("transforms") || reading.sound());
  if (known_output && reading.sound({"mix"}) && plan.mix && plan.mix->mixup_alpha &&
      plan.chain.output.dtype == DType::kUInt8)
    reading.wrong_key("mix/mixup",
                      "gives fractions, which uint8 cannot hold; set output.dtype to float32, float16 or "
                      "bfloat16, or use cutmix alone");
  // Before the source is open, its images are unknown, and may have one size, so that no crop is needed. Once
  // it is open, all chains are compiled again.
  std::vector<std::string> fields = plan.named();
  if (fields.empty()) fields.emplace_back();
  for (const std::string& field : fields) {
    PlanConfig chain = plan.chain_of(field, false);
    chain.input = {kLargestSide, kLargestSide};
    if (!known_output) chain.output.dtype = DType::kFloat32;  // which accepts all of them
    if (!check_chain(std::move(chain), field, whole, map, reading)) return;
  }
}

bool normalizes(const StreamPlan& plan) {
  Values values;
  for (const auto& transform : plan.chain.transforms) transform->add_to(values);
  return !values.mean.empty();
}

}  // namespace headrace::server::config
