#include "clientlib/gpu/rows/affine_values.h"

#include <cmath>
#include <limits>

#include "clientlib/gpu/rows/lifted.h"
#include "clientlib/pixels/values.h"

namespace headrace::gpu {
namespace {

using pixels::ValueType;

bool gives_all_values(const AffineValue& affine, const pixels::Normalization& how, ValueType type) {
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<std::uint8_t>(i);
    if (pixels::bits_of(multiply_add(fraction_of(byte), affine.scale, affine.offset), type) !=
        pixels::value_bits(byte, how, type))
      return false;
  }
  return true;
}

/// `value`, `steps` floats further away from 0, or nearer to it if negative.
float moved(float value, int steps) {
  const float to = steps < 0 ? 0 : std::copysign(std::numeric_limits<float>::infinity(), value);
  for (int i = 0; i < std::abs(steps); ++i) value = std::nextafter(value, to);
  return value;
}

}  // namespace

bool find_affine(const pixels::Normalization& how, ValueType type, AffineValue& found) {
  const double std = how.normalized ? how.std : 1, mean = how.normalized ? how.mean : 0;
  const auto scale = static_cast<float>(256.0 / 255.0 / std), offset = static_cast<float>(-mean / std);
  for (const int scale_steps : {0, 1, -1, 2, -2, 3, -3})
    for (const int offset_steps : {0, 1, -1, 2, -2, 3, -3}) {
      found = {moved(scale, scale_steps), moved(offset, offset_steps)};
      if (gives_all_values(found, how, type)) return true;
    }
  return false;
}

void choose_conversion(RowJob& job) {
  job.conversion = job.element_bytes == 1   ? Conversion::kBytes
                   : job.element_bytes == 4 ? Conversion::kTableFloat32
                                            : Conversion::kTableHalf;
  if (job.element_bytes != 2) return;
  for (std::int32_t c = 0; c < job.out_channels; ++c)
    if (!find_affine(job.how[c], job.type, job.affine[c])) return;
  job.conversion = job.type == ValueType::kFloat16 ? Conversion::kAffineFloat16 : Conversion::kAffineBFloat16;
}

}  // namespace headrace::gpu
