// MixUp and CutMix over finished rows (server/transform/mixing.h): mixes each row's image with its partner's,
// and turns the classes of both into shares.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/error.h"
#include "headrace/field.h"
#include "server/exec/field_plans.h"
#include "server/source/source.h"
#include "server/transform/mixing.h"

namespace headrace::server::exec {

/// Thread safety: immutable.
class RowMixer {
 public:
  /// `plans`: from plan_fields() for this source. kConfigInvalid: samples without a class, an unknown number
  /// of classes or a class beyond it; not exactly one image field; masks, which would have to be mixed as
  /// well; mixup of uint8.
  static Result<std::shared_ptr<const RowMixer>> make(const transform::MixConfig& config,
                                                      const std::vector<FieldPlan>& plans,
                                                      const source::Source& source,
                                                      transform::PixelLayout layout);

  /// The field "label" of a batch: float32 (num_classes) with each class's share; the shares add up to 1.
  [[nodiscard]] FieldSpec label_field() const;
  /// kDatasetInvalid: a class outside [0, num_classes).
  [[nodiscard]] Result<void> check_label(std::int64_t label) const;

  /// Index of the image field.
  [[nodiscard]] std::size_t image_field() const { return field_; }

  /// A row that is finished except for mixing.
  struct MixedRow {
    transform::DrawKey key;
    std::int64_t class_index = 0;
    std::byte* image = nullptr;
    std::byte* label = nullptr;  ///< of label_field(); unset
  };
  /// Mixes both rows of a pair, each with the other's unmixed content.
  void mix_pair(const MixedRow& one, const MixedRow& other) const;
  /// Mixes `row` only; `partner` does not change.
  void mix(const MixedRow& row, const MixedRow& partner) const;
  [[nodiscard]] transform::Mixing draw(const transform::DrawKey& key) const {
    return transform::draw_mixing(config_, key, image_.size());
  }

 private:
  RowMixer(const transform::MixConfig& config, transform::ImageMixer image, std::size_t field)
      : config_(config), image_(image), field_(field) {}
  void write_label(const MixedRow& row, std::int64_t partner, double share) const;

  transform::MixConfig config_;
  transform::ImageMixer image_;
  std::size_t field_;  ///< index of the image
};

}  // namespace headrace::server::exec
