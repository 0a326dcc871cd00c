// From encoded bytes to one row of a batch: decode, geometry, and the fused last stage. Names and semantics
// are torchvision v2's on its PIL backend; uint8 results are equal bit for bit, float32 equals ToTensor +
// Normalize.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "headrace/field.h"
#include "server/decode/bad.h"
#include "server/decode/decoder.h"
#include "server/transform/kernels/image_types.h"
#include "server/transform/stages/scratch.h"

namespace headrace::server::transform {

class Op;
/// One transform of a chain, never null: see op.h; ops/ops.h lists the available ones.
using Transform = std::shared_ptr<const Op>;

/// A smaller version of the image, made before the chain begins: the input of super-resolution training.
struct Derivation {
  std::int32_t factor = 1;  ///< sides are divided by it
  Interpolation interpolation = Interpolation::kBicubic;
  bool enlarge = false;  ///< and then multiplied by it
};

struct PlanConfig {
  std::vector<Transform> transforms;
  Output output;
  Size input;                 // of all images, others are bad; 0, 0: they differ, or are unknown
  std::int32_t channels = 3;  // of the images and of the output; 1 if all images are gray
  bool mask = false;  // see source::SourceField; the output is uint8 of (H, W), whatever `output` says
  // Every size, position and padding of the chain is multiplied by this, so that one chain cuts the same part
  // out of images of several scales. After `multiple` and `derived`, an image must have sides that are
  // multiples of it.
  std::int32_t scale = 1;
  // Sides of the image must be multiples of this before anything else; images that belong together must have
  // the same number of units.
  std::int32_t unit = 1;
  std::int32_t multiple = 1;  // first the image is cut, right and bottom, to sides that are multiples of this
  std::optional<Derivation> derived;
  // PIL's decompression-bomb limit, for an image and for what one stage of the chain passes to the next;
  // refused before allocation.
  std::uint64_t max_pixels = 178'956'970;
  ResizePasses passes = ResizePasses::kPillow13;
  // For corrupt but decodable images, which are always counted; true: they are bad.
  bool warnings_are_bad = false;
};

/// Why a sample was refused; also the `reason` label of the error counter.
using BadReason = decode::BadReason;
using decode::name_of;

/// What one render did, for metrics and for the policy on bad samples.
struct RenderReport {
  BadReason bad = BadReason::kNone;
  std::string detail;   // filled when bad
  Size base;            // of the image, in units of PlanConfig::unit
  bool warned = false;  // decoder warned, pixels were produced
  std::uint64_t decode_ns = 0, transform_ns = 0;
};

/// The inputs of a random draw.
struct DrawKey {
  std::uint64_t seed, epoch, position;
};

/// An image after the chain's prefix: the part before the first transform that draws or changes colors.
/// Without such a part, the whole image as decoded.
struct Prepared {
  std::span<const std::uint8_t> bytes;
  decode::PixelShape pixels;  ///< interleaved; one channel if the configuration makes all three equal
  Size base;                  ///< see RenderReport
};

/// A compiled chain. Thread safety: immutable; any thread may call `render` with its own Scratch.
class Plan {
 public:
  /// kConfigInvalid: no fixed output size, normalize not last or with uint8 output, sizes out of range.
  /// `culprit` becomes the transform that the error concerns; none: it concerns the whole chain.
  static Result<Plan> compile(const PlanConfig& config, std::optional<std::size_t>* culprit = nullptr);

  [[nodiscard]] Size output_size() const;
  /// Spec of the image field: shape (3,H,W) or (H,W,3); gray and luma (1,H,W) or (H,W,1); a mask (H,W).
  [[nodiscard]] FieldSpec image_field() const;
  [[nodiscard]] std::size_t row_bytes() const;

  /// Decodes `image` (a file: JPEG or PNG by content) and writes one row of exactly row_bytes() at `out`
  /// (64-byte alignment not needed). On a bad sample `out`'s content is unspecified and report.bad says why.
  /// Never throws, never reads or writes out of bounds on hostile input.
  RenderReport render(const decode::ImageData& image, DrawKey key, Scratch& scratch, std::byte* out) const;

  /// render() in two parts, with the same row: prepare() does what is the same in every epoch, finish() the
  /// rest. prepare() makes the pixels in `storage`. False: they are more than `room` bytes, or only render()
  /// can handle this image: it is bad, the decoder warned, or it is too large to be made whole. The pixels
  /// are then unspecified. Like render(), both never throw.
  bool prepare(const decode::ImageData& image, Scratch& scratch, std::uint64_t room,
               std::vector<std::uint8_t>& storage, Prepared& out) const;
  RenderReport finish(const Prepared& image, DrawKey key, Scratch& scratch, std::byte* out) const;
  /// render() of bare pixels and finish(), if they need only crops, flips, turns and normalize: without
  /// reading the clock, and without allocation once `scratch` is warm. False: this image needs render() or
  /// finish(), and `out`'s content is unspecified. Throws std::bad_alloc.
  [[nodiscard]] bool may_cut_bare() const;  ///< false: cut() of bare pixels always returns false
  [[nodiscard]] bool may_cut_prepared() const;
  bool cut(const decode::ImageData& image, DrawKey key, Scratch& scratch, std::byte* out, Size& base) const;
  bool cut(const Prepared& image, DrawKey key, Scratch& scratch, std::byte* out) const;
  /// Describes what prepare() does: for the same image, equal texts mean equal pixels.
  [[nodiscard]] std::string prefix() const;
  /// Whether the prefix has a transform; otherwise prepare() only decodes.
  [[nodiscard]] bool has_prefix() const;
  /// Bytes that prepare() makes, if they are the same for every image.
  [[nodiscard]] std::optional<std::uint64_t> prepared_bytes() const;

  /// The parameters that render() draws, as JSON: an array with one object per transform, e.g.
  /// {"op":"random_resized_crop","top":..,"left":..,"height":..,"width":..} in coordinates of that
  /// transform's input,
  /// {"op":"random_horizontal_flip","applied":true}. Needs the image's size, hence the bytes.
  Result<nlohmann::json> parameters(const decode::ImageData& image, DrawKey key) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace headrace::server::transform
