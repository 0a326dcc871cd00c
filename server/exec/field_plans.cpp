#include "server/exec/field_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "server/exec/common_size.h"
#include "server/transform/chain_parts.h"
#include "server/transform/op.h"

namespace headrace::server::exec {
namespace {

using source::Content;
using source::SourceField;
using transform::PlanConfig;
using transform::StreamPlan;

std::vector<std::string> names_of(const std::vector<SourceField>& fields, const StreamPlan& plan) {
  std::vector<std::string> names;
  names.reserve(fields.size() + plan.derived.size());
  for (const SourceField& field : fields) names.push_back(field.name);
  for (const auto& [name, derived] : plan.derived) names.push_back(name);
  return names;
}

/// kConfigInvalid: the stream's configuration names a field that does not exist.
Result<void> check_names(const source::Source& source, const StreamPlan& plan) {
  const auto& fields = source.fields();
  const std::vector<std::string> names = names_of(fields, plan);
  const auto find = [&](const std::string& name) {
    return std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.name == name; });
  };
  const auto known = [&](const std::string& name, const char* where) -> Result<void> {
    if (std::find(names.begin(), names.end(), name) != names.end()) return {};
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("{}: there is no field `{}`; fields: {}", where, name, fmt::join(names, ", ")));
  };
  for (const auto& [name, derived] : plan.derived) {
    const auto origin = find(derived.from);
    if (origin == fields.end() || !origin->is_image() || origin->mask)
      return fail(ErrorCode::kConfigInvalid,
                  fmt::format("derive: `{}` is derived from `{}`, which is not an image of the source", name,
                              derived.from));
    if (find(name) != fields.end() || name == "label")
      return fail(ErrorCode::kConfigInvalid,
                  fmt::format("derive: the source has a field `{}` already", name));
  }
  for (const std::string& name : plan.named()) {
    if (auto fine = known(name, "transforms"); !fine) return fine;
    const auto field = find(name);
    if (field != fields.end() && !field->is_image())
      return fail(
          ErrorCode::kConfigInvalid,
          fmt::format("transforms: field `{}` is not an image; transforms apply only to images", name));
  }
  for (const std::string& name : plan.select)
    if (auto fine = known(name, "fields"); !fine) return fine;
  return {};
}

/// Whether the chain crops at random, with or without a resize.
bool randomly_cropped(const PlanConfig& chain) {
  return std::any_of(chain.transforms.begin(), chain.transforms.end(), [](const auto& transform) {
    const auto traits = transform->traits();
    return traits.crops && traits.draws;
  });
}

/// The factor for the source's scales that makes the scales of derived, reduced images whole numbers: 1 if
/// the source has reduced images of its own.
std::int32_t scale_of(const source::Source& source, const StreamPlan& plan) {
  std::int32_t scale = 1;
  for (const auto& [name, derived] : plan.derived)
    for (const SourceField& field : source.fields())
      if (field.name == derived.from && !derived.how.enlarge)
        scale = std::lcm(scale, derived.how.factor / std::gcd(field.scale, derived.how.factor));
  return scale;
}

/// The number that image sizes are cut to a multiple of (times their scale) before fields are derived: every
/// image of a sample then loses the same border, and each factor divides the rest. kConfigInvalid: above 64.
Result<std::int32_t> multiple_of(const source::Source& source, const StreamPlan& plan) {
  constexpr std::int64_t kLargest = 64;
  std::int64_t multiple = 1;
  for (const auto& [name, derived] : plan.derived)
    for (const SourceField& field : source.fields())
      if (const std::int64_t factor = derived.how.factor; field.name == derived.from)
        multiple =
            std::min(std::lcm(multiple, factor / std::gcd(std::int64_t{field.scale}, factor)), kLargest + 1);
  if (multiple > kLargest)
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("derive: the factors have no common multiple up to {}", kLargest));
  return static_cast<std::int32_t>(multiple);
}

class Planner {
 public:
  Planner(const source::Source& source, const StreamPlan& plan, std::int32_t multiple, std::uint64_t rows,
          bool repeats)
      : source_(source),
        plan_(plan),
        multiple_(multiple),
        scale_(scale_of(source, plan)),
        rows_(rows),
        repeats_(repeats) {}

  Result<std::vector<FieldPlan>> all() {
    for (std::size_t i = 0; i < source_.fields().size(); ++i) {
      const SourceField& field = source_.fields()[i];
      if (auto added = field.is_image() ? image(i, field.name, std::nullopt) : values(i); !added)
        return fail(added.error());
      for (const auto& [name, derived] : plan_.derived)
        if (derived.from == field.name)
          if (auto added = image(i, name, derived.how); !added) return fail(added.error());
    }
    const auto cropped = std::count_if(out_.begin(), out_.end(), [](const auto& f) { return f.aligned; });
    if (cropped < 2)
      for (FieldPlan& field : out_) field.aligned = false;
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool selected(const std::string& name) const {
    return plan_.select.empty() ||
           std::find(plan_.select.begin(), plan_.select.end(), name) != plan_.select.end();
  }

  Result<void> image(std::size_t index, const std::string& name,
                     const std::optional<transform::Derivation>& derived) {
    if (!selected(name)) return {};
    const SourceField& field = source_.fields()[index];
    PlanConfig chain = plan_.chain_of(name, field.mask);
    chain.channels = field.channels;
    chain.input = {field.height, field.width};
    chain.unit = field.scale;
    chain.multiple = multiple_ * field.scale;
    chain.derived = derived;
    chain.scale = field.scale * scale_;
    if (derived && !derived->enlarge) chain.scale /= derived->factor;
    auto compiled = compile(index, chain);
    if (!compiled) {
      Error error = compiled.error();
      if (source_.fields().size() + plan_.derived.size() > 1)
        error.message = fmt::format("field `{}`: {}", name, error.message);
      return fail(std::move(error));
    }
    FieldSpec spec = compiled->image_field();
    spec.name = name;
    std::shared_ptr<const transform::DeviceRows> on_device;
    if (plan_.on_device && !field.mask) {
      auto split = transform::DeviceRows::split(chain, *compiled);
      if (!split) return fail(split.error());
      on_device = std::make_shared<const transform::DeviceRows>(std::move(*split));
    }
    const bool cropped = randomly_cropped(chain);
    transform::Values written;
    for (const transform::Transform& transform : chain.transforms) transform->add_to(written);
    RowValues values{chain.output.layout == transform::PixelLayout::kNchw, std::move(written.mean),
                     std::move(written.std)};
    if (on_device) chain = transform::first_part(chain, transform::device_begins(chain.transforms));
    out_.push_back({std::move(spec), index, std::move(*compiled), field.scale, cropped, std::move(on_device),
                    std::move(chain), std::move(values)});
    return {};
  }

  /// A chain that only lacks a final size is compiled for the one size of the source's images.
  Result<transform::Plan> compile(std::size_t index, PlanConfig& chain) const {
    auto compiled = transform::Plan::compile(chain);
    if (compiled || chain.input.height > 0 || chain.derived) return compiled;
    PlanConfig sized = chain;
    sized.input = {transform::kLargestSide, transform::kLargestSide};
    if (!transform::Plan::compile(sized)) return compiled;
    const auto size = common_size(source_, index, chain.max_pixels);
    if (!size) return fail(size.error());
    if (!*size) return compiled;
    chain.input = **size;
    return transform::Plan::compile(chain);
  }

  Result<void> values(std::size_t index) {
    const SourceField& field = source_.fields()[index];
    if (!selected(field.name)) return {};
    FieldSpec spec{field.name, field.dtype, FieldKind::kDense, field.shape, 0};
    if (field.content == Content::kRagged) {
      spec.kind = FieldKind::kRagged;
      const std::uint64_t most =
          repeats_ ? rows_ * source_.most_values(index, 1) : source_.most_values(index, rows_);
      spec.ragged_capacity = static_cast<std::int64_t>(std::max<std::uint64_t>(1, most));
    }
    out_.push_back({std::move(spec), index, std::nullopt, 1, false});
    return {};
  }

  const source::Source& source_;
  const StreamPlan& plan_;
  const std::int32_t multiple_, scale_;
  const std::uint64_t rows_;
  const bool repeats_;
  std::vector<FieldPlan> out_;
};

}  // namespace

Result<std::vector<FieldPlan>> plan_fields(const source::Source& source, const StreamPlan& plan,
                                           std::uint64_t rows, bool repeats) {
  if (auto fine = check_names(source, plan); !fine) return fail(fine.error());
  if (plan.on_device && plan.mix)
    return fail(
        ErrorCode::kConfigInvalid,
        "mix: the server can only mix finished rows, but with `device: gpu` the device computes them: set "
        "`device: cpu`, or mix in the trainer");
  const auto multiple = multiple_of(source, plan);
  if (!multiple) return fail(multiple.error());
  return Planner(source, plan, *multiple, rows, repeats).all();
}

std::vector<std::string> kept_keys(const source::Source& source, const std::vector<FieldPlan>& plans) {
  std::vector<std::string> keys;
  bool spares = false;
  for (const FieldPlan& field : plans) {
    const SourceField& own = source.fields()[field.source_field];
    keys.push_back(fmt::format("{}: {}", own.name, field.plan ? field.plan->prefix() : "as it is"));
    spares |= field.plan && (own.content == Content::kEncodedImage || field.plan->has_prefix());
  }
  return spares ? keys : std::vector<std::string>();
}

std::optional<std::vector<std::uint64_t>> kept_bytes(const std::vector<FieldPlan>& plans) {
  std::vector<std::uint64_t> bytes;
  for (const FieldPlan& field : plans) {
    const auto own = field.plan ? field.plan->prepared_bytes() : std::uint64_t{0};
    if (!own) return std::nullopt;
    bytes.push_back(*own);
  }
  return bytes;
}

std::optional<double> kept_bytes(const source::Source& source, const std::vector<FieldPlan>& plans,
                                 double pixels) {
  constexpr double kChannels = 3;
  if (kept_keys(source, plans).empty()) return std::nullopt;
  const auto fixed = kept_bytes(plans);
  return fixed ? static_cast<double>(std::accumulate(fixed->begin(), fixed->end(), std::uint64_t{0}))
               : kChannels * pixels;
}

}  // namespace headrace::server::exec
