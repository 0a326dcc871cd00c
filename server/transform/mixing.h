// MixUp (Zhang et al. 2018) and CutMix (Yun et al. 2019) as torchvision.transforms.v2 computes them, with one
// difference: a sample's partner and parameters are drawn for its position in the epoch, not once per batch.
// The content of a position therefore does not depend on the size or the start of batches.
//
// Neighbors are partners: positions 0 and 1, 2 and 3, and so on. The order of an epoch is random, so a
// neighbor is as random a partner as any other; and a batch of even size contains all its partners.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "headrace/error.h"
#include "headrace/field.h"
#include "server/decode/decoder.h"
#include "server/transform/plan.h"

namespace headrace::server::transform {

/// If both alphas are given, each sample uses one of the two, with equal probability (as v2.RandomChoice).
struct MixConfig {
  std::optional<double> mixup_alpha;   ///< v2.MixUp's alpha: lambda is drawn from Beta(alpha, alpha)
  std::optional<double> cutmix_alpha;  ///< v2.CutMix's
  double p = 1;                        ///< probability that a sample is mixed
  std::int32_t num_classes = 0;        ///< 0: as many as the source names
};

/// How one sample is mixed.
struct Mixing {
  enum class Kind : std::uint8_t { kNone, kMixup, kCutmix } kind = Kind::kNone;
  /// The sample's own share of the label; for cutmix, after the box was clipped at the edges.
  double lambda = 1;
  decode::Rect box;  ///< kCutmix: the part of the output that comes from the partner; may be empty
};

/// The other position of its pair. The last position of an odd epoch has the first one as its partner.
/// position < size.
constexpr std::uint64_t partner_of(std::uint64_t position, std::uint64_t size) {
  const std::uint64_t other = position ^ 1U;
  return other < size ? other : 0;
}

/// `size`: of the output image.
Mixing draw_mixing(const MixConfig& config, const DrawKey& key, Size size);

/// Beta(alpha, alpha), alpha > 0: within [0, 1]. Uses only this key's draws and exact arithmetic.
double draw_beta(double alpha, const DrawKey& key);

/// Mixes rows of an image field in place, for instance (3, H, W) or (H, W, 3).
class ImageMixer {
 public:
  /// `field`: an image field of Plan::image_field(), with that layout. kConfigInvalid: mixup of uint8, which
  /// cannot represent fractions.
  static Result<ImageMixer> make(const MixConfig& config, const FieldSpec& field, PixelLayout layout);

  [[nodiscard]] Size size() const { return size_; }
  /// Mixes `row` with `partner` as `how` says. Float results are the float32 sum of the two products, as in
  /// torch. Rows of half types were rounded when they were made, and their sum is rounded again.
  void mix(const Mixing& how, std::byte* row, const std::byte* partner) const;
  /// Mixes both rows at once, each with the other's unmixed content.
  void mix_pair(const Mixing& how, std::byte* row, const Mixing& others, std::byte* other) const;

 private:
  /// Mixes one line of the image: of one channel, or of all three (NHWC).
  void mix_line(const Mixing& how, std::size_t line, std::byte* own, const std::byte* partner) const;

  DType dtype_ = DType::kUInt8;
  Size size_;
  std::size_t lines_ = 0;     ///< of all planes
  std::size_t elements_ = 0;  ///< per line
  std::size_t pixel_ = 0;     ///< elements of a pixel within a line
};

/// As Plan::parameters: {"op":"mixup","partner":..,"lambda":..}; for cutmix also top, left, height, width.
nlohmann::json describe(const Mixing& how, std::uint64_t partner);

}  // namespace headrace::server::transform
