#include "server/pack/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/pictures/png_file.h"
#include "server/transform/draw_steps.h"
#include "server/transform/ops/ops.h"

namespace headrace::server::pack {

using source::Content;
using source::SourceField;
using store::Storing;

namespace {

transform::Transform resize_to(const store::ResizeTo& to) {
  const auto both = nlohmann::json::array({to.height, to.width});
  return transform::make_op("resize", {{"size", to.shorter > 0 ? nlohmann::json(to.shorter) : both}});
}

constexpr std::uint64_t kMaxPixels = transform::PlanConfig{}.max_pixels;

/// A mask's pixels are classes, which a color decoder does not return.
bool changes(const SourceField& field, const store::Options& options) {
  if (!field.is_image() || field.mask) return false;
  return options.resize.wanted() ||
         (options.storing == Storing::kDecoded && field.content == Content::kEncodedImage);
}

bool tiles(const SourceField& field, const store::Options& options) {
  return options.storing == Storing::kTiled && !options.resize.wanted() && !field.mask &&
         field.content == Content::kEncodedImage;
}

}  // namespace

Result<std::vector<SourceField>> packed_fields(const std::vector<SourceField>& given,
                                               const store::Options& options) {
  std::vector<SourceField> fields = given;
  for (SourceField& field : fields) {
    if (options.resize.wanted() && field.is_image() && (field.mask || field.scale != 1))
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("field `{}` matches another field pixel by pixel, so it cannot be resized alone: pack "
                      "without --resize",
                      field.name));
    if (!changes(field, options)) continue;
    if (options.resize.wanted()) {
      field.height = options.resize.height;
      field.width = options.resize.width;
    }
    field.content = options.storing == Storing::kDecoded ? Content::kPixels : Content::kEncodedImage;
    // A file that cannot be decoded has no known size.
    if (options.storing != Storing::kDecoded) field.height = field.width = 0;
  }
  return fields;
}

std::string Converter::change(std::size_t field, const decode::ImageData& image, Image& out, bool& warned) {
  const auto opened = decoder_.open(image, kMaxPixels);
  if (!opened) return to_string(opened.error());
  const std::int32_t channels = fields_[field].channels;
  transform::PlanConfig config{.output = {DType::kUInt8, transform::PixelLayout::kNhwc},
                               .input = {opened->height, opened->width},
                               .channels = channels};
  transform::Size size = config.input;
  if (const store::ResizeTo& to = options_.resize; to.wanted()) {
    // A plan makes images of one size: this image's, by torchvision's rule.
    config.transforms = {resize_to(to)};
    std::vector<transform::Step> steps;
    if (const auto drawn = transform::draw_steps(config, *opened, {}, steps); !drawn)
      return to_string(drawn.error());
    size = steps.at(0).size;
    config.transforms = {resize_to({.height = size.height, .width = size.width})};
  }
  const auto plan = transform::Plan::compile(config);
  if (!plan) return to_string(decode::Bad{decode::BadReason::kTooLarge, plan.error().message});
  out.bytes.resize(plan->row_bytes());
  const auto report = plan->render(image, {0, 0, 0}, pixels_, reinterpret_cast<std::byte*>(out.bytes.data()));
  if (report.bad != decode::BadReason::kNone) return to_string(decode::Bad{report.bad, report.detail});
  warned |= report.warned;
  out.shape = {size.width, size.height, channels, false};
  if (options_.storing != Storing::kDecoded) {
    auto file = pictures::encode_png(out.bytes, out.shape);
    if (!file) return to_string(decode::Bad{decode::BadReason::kTooLarge, file.error().message});
    out = {std::move(*file), {.width = 0}};
  }
  return {};
}

std::string Converter::tile(std::size_t field, const decode::ImageData& image, store::RecordField& part,
                            Converted& out) {
  Image& tiled = images_[field];
  const decode::Tiling became = tiler_.tile(part.bytes, tiled.bytes);
  ++out.tiling.files.at(static_cast<std::size_t>(became));
  if (became == decode::Tiling::kTiled) {
    out.tiling.before += part.bytes.size();
    out.tiling.after += tiled.bytes.size();
    part.bytes = tiled.bytes;
  }
  // Other files are mostly PNG: only the header is checked.
  if (became == decode::Tiling::kNoJpeg) {
    const auto opened = decoder_.open(image, kMaxPixels);
    return opened ? std::string() : to_string(opened.error());
  }
  return became == decode::Tiling::kUndecodable ? change(field, image, tiled, out.warned) : std::string();
}

Converted Converter::convert(std::uint64_t index, const InputSample& given) {
  Converted out;
  std::vector<store::RecordField> parts(fields_.size());
  const bool unreadable = !given.bad.empty();
  if (unreadable) out.facts.undecodable = fmt::format("{}: {}", given.name, given.bad);
  for (std::size_t f = 0; f < fields_.size() && !unreadable; ++f) {
    const source::Item& item = given.sample.items[f];
    out.facts.raw_bytes += item.bytes.size();
    parts[f] = {item.bytes, item.pixels};
    std::string wrong;
    if (tiles(fields_[f], options_)) wrong = tile(f, item.image(), parts[f], out);
    if (changes(fields_[f], options_)) {
      wrong = change(f, item.image(), images_[f], out.warned);
      if (wrong.empty()) parts[f] = {images_[f].bytes, images_[f].shape};
    }
    parts[f].undecodable = !wrong.empty();
    if (!wrong.empty() && out.facts.undecodable.empty())
      out.facts.undecodable = fmt::format("{}: {}", given.name, wrong);
  }
  for (std::size_t f = 0; f < fields_.size(); ++f)
    if (fields_[f].content == Content::kRagged)
      out.facts.lengths.push_back(parts[f].bytes.size() / store::value_bytes(fields_[f]));
  if (given.content_hash) {
    out.facts.label = given.label;
    out.facts.content_hash = *given.content_hash;
    for (const store::RecordField& part : parts)
      if (!unreadable) out.facts.sizes.push_back({part.pixels.width, part.pixels.height});
  }
  store::encode({index, given.label, given.name, unreadable, parts}, options_.compression, scratch_,
                out.record);
  return out;
}

}  // namespace headrace::server::pack
