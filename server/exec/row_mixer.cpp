#include "server/exec/row_mixer.h"

#include <fmt/format.h>

#include <cstring>

#include "server/exec/shown_name.h"

namespace headrace::server::exec {

using transform::Mixing;

Result<std::shared_ptr<const RowMixer>> RowMixer::make(const transform::MixConfig& config,
                                                       const std::vector<FieldPlan>& plans,
                                                       const source::Source& source,
                                                       transform::PixelLayout layout) {
  const auto invalid = [](std::string message) {
    return fail(ErrorCode::kConfigInvalid, "mix: " + std::move(message));
  };
  if (!source.labelled())
    return invalid(
        "the source's samples have no class that could be mixed; leave `mix` out, or take a source with "
        "classes");
  std::vector<std::size_t> images;
  for (std::size_t f = 0; f < plans.size(); ++f) {
    if (!plans[f].plan) continue;
    if (source.fields()[plans[f].source_field].mask)
      return invalid(
          fmt::format("field `{}` is a mask, and classes of pixels cannot be mixed; leave it out "
                      "with `fields`",
                      plans[f].spec.name));
    images.push_back(f);
  }
  if (images.size() != 1)
    return invalid(fmt::format("needs batches of one image field, these have {}; choose one with `fields`",
                               images.size()));
  transform::MixConfig complete = config;
  if (complete.num_classes == 0)
    complete.num_classes = static_cast<std::int32_t>(source.class_names().size());
  if (complete.num_classes == 0)
    return invalid("the source does not say how many classes there are; set mix.num_classes");
  for (std::uint64_t sample = 0; sample < source.size(); ++sample)
    if (const std::int64_t label = source.label(sample); label < 0 || label >= complete.num_classes)
      return invalid(
          fmt::format("sample {} is of class {}, and num_classes is {}, of which the last is {}; set "
                      "mix.num_classes to as many as there are",
                      shown_name(source, sample), label, complete.num_classes, complete.num_classes - 1));
  auto image = transform::ImageMixer::make(complete, plans[images[0]].spec, layout);
  if (!image) return fail(image.error());
  return std::shared_ptr<const RowMixer>(new RowMixer(complete, *image, images[0]));
}

FieldSpec RowMixer::label_field() const {
  return FieldSpec{"label", DType::kFloat32, FieldKind::kDense, {config_.num_classes}, 0};
}

Result<void> RowMixer::check_label(std::int64_t label) const {
  if (label >= 0 && label < config_.num_classes) return {};
  return fail(ErrorCode::kDatasetInvalid, fmt::format("class {} is outside the {} classes (mix.num_classes)",
                                                      label, config_.num_classes));
}

void RowMixer::write_label(const MixedRow& row, std::int64_t partner, double share) const {
  std::byte* const out = row.label;
  std::memset(out, 0, static_cast<std::size_t>(config_.num_classes) * sizeof(float));
  // In torch's order of addition: the partner's share first.
  const auto add = [out](std::int64_t label, double part) {
    std::byte* const at = out + static_cast<std::size_t>(label) * sizeof(float);
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    value += static_cast<float>(part);
    std::memcpy(at, &value, sizeof value);
  };
  add(partner, 1 - share);
  add(row.class_index, share);
}

void RowMixer::mix_pair(const MixedRow& one, const MixedRow& other) const {
  const Mixing how = draw(one.key), others = draw(other.key);
  image_.mix_pair(how, one.image, others, other.image);
  write_label(one, other.class_index, how.lambda);
  write_label(other, one.class_index, others.lambda);
}

void RowMixer::mix(const MixedRow& row, const MixedRow& partner) const {
  const Mixing how = draw(row.key);
  image_.mix(how, row.image, partner.image);
  write_label(row, partner.class_index, how.lambda);
}

}  // namespace headrace::server::exec
