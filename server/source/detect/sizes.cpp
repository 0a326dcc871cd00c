#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "server/decode/decoder.h"
#include "server/source/detect/proposal.h"

namespace headrace::server::source {
namespace {

/// Image sizes of a few samples, evenly spread over the source.
struct Looks {
  std::vector<std::int32_t> sides;          ///< the shorter side of each sample's smallest image, ascending
  std::optional<decode::ImageSize> common;  ///< of all images; none: sizes differ
};

/// Ignores samples that cannot be read: serving them reports the error.
Looks look_at(const Source& source) {
  constexpr std::uint64_t kSampledImages = 16;
  Looks out;
  Sample sample;
  decode::Decoder decoder;
  const std::uint64_t looks = std::min(source.size(), kSampledImages);
  bool first = true;
  for (std::uint64_t i = 0; i < looks; ++i) {
    if (!source.read(i * source.size() / looks, sample)) continue;
    std::int32_t side = std::numeric_limits<std::int32_t>::max();
    for (std::size_t field = 0; field < source.fields().size(); ++field) {
      if (!source.fields()[field].is_image()) continue;
      const auto size = decoder.open(sample.item(field).image(), std::numeric_limits<std::uint32_t>::max());
      if (!size) continue;
      side = std::min({side, size->height, size->width});
      if (first) out.common = *size;
      first = false;
      if (out.common != *size) out.common.reset();
    }
    if (side < std::numeric_limits<std::int32_t>::max()) out.sides.push_back(side);
  }
  std::sort(out.sides.begin(), out.sides.end());
  return out;
}

/// Lines for images of one small size, as CIFAR's: cropped at their own size, with padding for shifts.
std::string crop_small(bool training, const decode::ImageSize& size) {
  constexpr std::int32_t kShare = 8;  // 4 of 32, as is usual
  const std::int32_t side = std::min(size.height, size.width);
  const std::string sides =
      size.height == size.width ? std::to_string(side) : fmt::format("[{}, {}]", size.height, size.width);
  if (!training)
    return fmt::format(
        "    batch_size: 256\n"
        "    transforms:\n"
        "      - center_crop: {{size: {}}}\n",
        sides);
  return fmt::format(
      "    batch_size: 256\n"
      "    transforms:\n"
      "      - random_crop: {{size: {}, padding: {}}}\n"
      "      - random_horizontal_flip\n",
      sides, side / kShare);
}

}  // namespace

std::string crop_images(bool training, std::int32_t side) {
  if (training)
    return fmt::format(
        "    batch_size: 64\n"
        "    transforms:\n"
        "      - random_resized_crop: {{size: {}}}\n"
        "      - random_horizontal_flip\n"
        "      # - normalize: {{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}  # ImageNet's; "
        "batches "
        "become float32\n",
        side);
  constexpr std::int32_t kShown = 224, kResized = 256;  // the usual two
  return fmt::format(
      "    batch_size: 64\n"
      "    transforms:\n"
      "      - resize: {{size: {}}}\n"
      "      - center_crop: {{size: {}}}\n"
      "      # - normalize: {{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}  # as for the "
      "training\n",
      side * kResized / kShown, side);
}

std::string crop_together(bool training, bool mask, std::int32_t side) {
  const std::int32_t usual = mask ? 224 : 48;
  std::string out = fmt::format(
      "    batch_size: 16\n"
      "    transforms:\n"
      "      - {}: {{size: {}{}}}\n",
      training ? "random_crop" : "center_crop", side == 0 ? usual : std::min(usual, side),
      training ? ", pad_if_needed: true" : "");
  if (training) out += "      - random_horizontal_flip\n";
  return out;
}

bool fit(Proposal& proposal, const std::string& stream, const Source& source) {
  const auto part = std::find_if(proposal.parts.begin(), proposal.parts.end(),
                                 [&](const ProposedStream& one) { return one.name == stream; });
  if (part == proposal.parts.end() || part->stream != crop_images(part->training)) return false;
  const Looks looks = look_at(source);
  if (looks.sides.empty()) return false;
  const auto& fields = source.fields();
  const auto images =
      std::count_if(fields.begin(), fields.end(), [](const SourceField& field) { return field.is_image(); });
  const bool mask =
      std::any_of(fields.begin(), fields.end(), [](const SourceField& field) { return field.mask; });
  constexpr std::int32_t kUsual = 224, kSmall = 128, kStep = 8;
  const std::int32_t median = looks.sides[looks.sides.size() / 2];
  std::string own = part->stream;
  if (images > 1) {
    own = crop_together(part->training, mask, looks.sides.front());
  } else if (looks.common && std::max(looks.common->height, looks.common->width) <= kSmall) {
    own = crop_small(part->training, *looks.common);
  } else if (median < kUsual) {
    own = crop_images(part->training, std::max(kStep, median / kStep * kStep));
  }
  if (own == part->stream) return false;
  part->stream = std::move(own);
  proposal.config = config_of(proposal.parts);
  return true;
}

}  // namespace headrace::server::source
