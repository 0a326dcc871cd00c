// Padding by numpy.pad's rules.
#pragma once

#include <cstdint>

#include "clientlib/pixels/hd.h"
#include "headrace/device_image.h"

namespace headrace::pixels {

/// The source index along one axis of `length` pixels for an index outside of it, or -1 for the fill color.
HEADRACE_HD inline std::int32_t padded_index(std::int32_t at, std::int32_t length, PaddingMode mode) {
  if (at >= 0 && at < length) return at;
  const std::int32_t period = mode == PaddingMode::kReflect ? 2 * length - 2 : 2 * length;
  switch (mode) {
    case PaddingMode::kConstant:
      return -1;
    case PaddingMode::kEdge:
      return at < 0 ? 0 : length - 1;
    default:
      at = period == 0 ? 0 : ((at % period) + period) % period;
      return at < length ? at : (mode == PaddingMode::kReflect ? period : period - 1) - at;
  }
}

}  // namespace headrace::pixels
