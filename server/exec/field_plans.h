// The fields of a batch, and how each is made from the source's fields.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "headrace/field.h"
#include "headrace/stream_info.h"
#include "server/source/source.h"
#include "server/transform/device_rows.h"
#include "server/transform/stream_plan.h"

namespace headrace::server::exec {

/// How the values of an image's finished row are made from bytes.
struct RowValues {
  bool planar = false;            ///< channels are stored one after the other
  std::vector<double> mean, std;  ///< of `normalize`, one per channel; empty: not normalized
};

struct FieldPlan {
  FieldSpec spec;                       ///< a ragged field's capacity is for one batch
  std::size_t source_field = 0;         ///< index in Source::fields()
  std::optional<transform::Plan> plan;  ///< only for images; none: the source's values are used unchanged
  std::int32_t scale = 1;               ///< relative size of the source's images among each other
  /// Is cropped at random together with other images, all of which must have the same size once their scales
  /// are divided out.
  bool aligned = false;
  /// For a field that the device computes: the server's part of `plan`, and the device's part.
  std::shared_ptr<const transform::DeviceRows> on_device = {};
  transform::PlanConfig ring_chain = {};  ///< the chain of ring_plan()
  RowValues values = {};                  ///< only for images

  /// The plan of the image in the ring. REQUIRES: `plan`.
  [[nodiscard]] const transform::Plan& ring_plan() const { return on_device ? on_device->pictures() : *plan; }
};

/// The source's fields in its order, each followed by the fields derived from it. `rows`: per batch, for the
/// capacity of ragged fields; `repeats`: every row of a batch may be the same sample. kConfigInvalid: an
/// unknown or duplicate field, a field derived from a missing one, and what Plan::compile refuses, each with
/// the field's name.
Result<std::vector<FieldPlan>> plan_fields(const source::Source& source, const transform::StreamPlan& plan,
                                           std::uint64_t rows, bool repeats = false);

/// Describes what the caches `decoded` keep of each plan's field: equal texts mean equal bytes. None: keeping
/// them would save nothing, because the source gives pixels and every step on them is random.
std::vector<std::string> kept_keys(const source::Source& source, const std::vector<FieldPlan>& plans);
/// Bytes that the caches keep of each plan's field, if they are the same for all samples; 0 for values.
std::optional<std::vector<std::uint64_t>> kept_bytes(const std::vector<FieldPlan>& plans);
/// About how many bytes the caches `decoded` would keep of a sample whose images have `pixels` pixels
/// together. nullopt: they would save nothing.
std::optional<double> kept_bytes(const source::Source& source, const std::vector<FieldPlan>& plans,
                                 double pixels);

}  // namespace headrace::server::exec
