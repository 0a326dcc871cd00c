// Rows of a batch as pictures that people can look at.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/field.h"
#include "server/exec/field_plans.h"

namespace headrace::server::status {

struct Picture {
  std::uint32_t width = 0, height = 0;
  std::uint32_t channels = 0;  ///< 1 (gray) or 3 (RGB), interleaved
  std::vector<std::uint8_t> pixels;
};

/// A finished row of an image field: values of the output, `normalize` undone, clamped to 0 to 255. REQUIRES:
/// plan.plan; `row` has the field's bytes.
Picture picture_of_row(const exec::FieldPlan& plan, std::span<const std::byte> row);

/// REQUIRES: `bytes` has that many.
Picture picture_of_pixels(std::span<const std::uint8_t> bytes, const decode::PixelShape& shape);

/// A PNG file. kInternal: libspng fails.
Result<std::string> to_png(const Picture& picture);

}  // namespace headrace::server::status
