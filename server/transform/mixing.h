// MixUp (Zhang et al. 2018) and CutMix (Yun et al. 2019) as torchvision.transforms.v2 computes them, with one
// difference: a sample's partner and parameters are drawn for its position in the epoch, not once per batch.
// So what a position holds does not depend on how large batches are or where they begin.
//
// Neighbours are partners: positions 0 and 1, 2 and 3, and so on. The order of an epoch is random, so a
// neighbour is as random a partner as any; and a batch of an even size has all of them within itself.
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

/// Where both alphas are given, each sample takes one of the two, at equal odds (as v2.RandomChoice).
struct MixConfig {
  std::optional<double> mixup_alpha;   ///< v2.MixUp's alpha: lambda is drawn from Beta(alpha, alpha)
  std::optional<double> cutmix_alpha;  ///< v2.CutMix's
  double p = 1;                        ///< of a sample being mixed at all
  std::int32_t num_classes = 0;        ///< 0: as many as the source names
};

/// What happens to one sample.
struct Mixing {
  enum class Kind : std::uint8_t { kNone, kMixup, kCutmix } kind = Kind::kNone;
  double lambda = 1;  ///< the sample's own share of the label; of cutmix after the box was cut at the edges
  decode::Rect box;   ///< kCutmix: of the output, what comes from the partner; may be empty
};

/// The other one of its pair. The last position of an odd epoch takes the first's sample. position < size.
constexpr std::uint64_t partner_of(std::uint64_t position, std::uint64_t size) {
  const std::uint64_t other = position ^ 1U;
  return other < size ? other : 0;
}

/// `size`: of the output image.
Mixing draw_mixing(const MixConfig& config, const DrawKey& key, Size size);

/// Beta(alpha, alpha), alpha > 0: within [0, 1]. Made of this key's draws and exact arithmetic alone.
double draw_beta(double alpha, const DrawKey& key);

/// Mixes rows of an image field in place, for instance (3, H, W) or (H, W, 3).
class ImageMixer {
 public:
  /// `field`: an image field of Plan::image_field(), with that layout. kConfigInvalid: mixup of uint8, which
  /// cannot hold fractions.
  static Result<ImageMixer> make(const MixConfig& config, const FieldSpec& field, PixelLayout layout);

  [[nodiscard]] Size size() const { return size_; }
  /// `row` becomes what `how` makes of it and `partner`. Float results are the float32 sum of the two
  /// products, as in torch. Rows of half types were rounded when they were made, and their sum is rounded
  /// again.
  void mix(const Mixing& how, std::byte* row, const std::byte* partner) const;
  /// Both at once: each with what the other was before.
  void mix_pair(const Mixing& how, std::byte* row, const Mixing& others, std::byte* other) const;

 private:
  /// One of the image's lines in memory: of one channel, or of all three (NHWC).
  void mix_line(const Mixing& how, std::size_t line, std::byte* own, const std::byte* partner) const;

  DType dtype_ = DType::kUInt8;
  Size size_;
  std::size_t lines_ = 0;     ///< of all planes
  std::size_t elements_ = 0;  ///< of a line
  std::size_t pixel_ = 0;     ///< elements of a pixel within a line
};

/// As Plan::parameters: {"op":"mixup","partner":..,"lambda":..}, and of cutmix top, left, height, width.
nlohmann::json describe(const Mixing& how, std::uint64_t partner);

}  // namespace headrace::server::transform
