// Which fields batches have, and how each is made of the source's.
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

struct FieldPlan {
  FieldSpec spec;                       ///< a ragged one's capacity is of one batch
  std::size_t source_field = 0;         ///< index in Source::fields()
  std::optional<transform::Plan> plan;  ///< of images; none: values as the source gives them
  std::int32_t scale = 1;               ///< of the images of the source, against one another
  /// Takes part in a random crop together with other images: all of them must be of one size, but for
  /// their scales.
  bool aligned = false;
  /// For a field that the device computes: the server's part of `plan`, and the device's part.
  std::shared_ptr<const transform::DeviceRows> on_device = {};

  /// The plan of the image in the ring. REQUIRES: `plan`.
  [[nodiscard]] const transform::Plan& ring_plan() const { return on_device ? on_device->pictures() : *plan; }
};

/// The source's fields in its order, each followed by what is derived of it. `rows`: of a batch, for ragged
/// capacities; `repeats`: a batch may have the same sample in each of them. kConfigInvalid: an unknown or
/// doubled field, a derived one that is made of none, and what Plan::compile refuses, each with the field's
/// name.
Result<std::vector<FieldPlan>> plan_fields(const source::Source& source, const transform::StreamPlan& plan,
                                           std::uint64_t rows, bool repeats = false);

/// What the cache `decoded` keeps of a sample, as text: equal texts mean equal bytes. Empty: keeping it would
/// spare nothing, since the source gives pixels and all that is done to them is drawn.
std::string kept_key(const source::Source& source, const std::vector<FieldPlan>& plans);
/// Bytes of all images that it keeps of a sample, if they are the same for all samples.
std::optional<std::uint64_t> kept_bytes(const std::vector<FieldPlan>& plans);

}  // namespace headrace::server::exec
