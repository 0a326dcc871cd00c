#include "clientlib/gpu/rows/value_lines.h"

#include <cmath>
#include <limits>

#include "clientlib/gpu/rows/lifted.h"
#include "clientlib/pixels/values.h"

namespace headrace::gpu {
namespace {

using pixels::ValueType;

bool gives_all_values(const ValueLine& line, const pixels::Normalization& how, ValueType type) {
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<std::uint8_t>(i);
    if (pixels::bits_of(fused(plain_of(byte), line.scale, line.offset), type) !=
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

bool find_line(const pixels::Normalization& how, ValueType type, ValueLine& line) {
  const double std = how.normalized ? how.std : 1, mean = how.normalized ? how.mean : 0;
  const auto scale = static_cast<float>(256.0 / 255.0 / std), offset = static_cast<float>(-mean / std);
  for (const int far : {0, 1, -1, 2, -2, 3, -3})
    for (const int high : {0, 1, -1, 2, -2, 3, -3}) {
      line = {moved(scale, far), moved(offset, high)};
      if (gives_all_values(line, how, type)) return true;
    }
  return false;
}

void choose_values(RowJob& job) {
  job.values = job.element_bytes == 1   ? Values::kBytes
               : job.element_bytes == 4 ? Values::kTable32
                                        : Values::kTable16;
  if (job.element_bytes != 2) return;
  for (std::int32_t c = 0; c < job.out_channels; ++c)
    if (!find_line(job.how[c], job.type, job.lines[c])) return;
  job.values = job.type == ValueType::kFloat16 ? Values::kHalves : Values::kBfloats;
}

}  // namespace headrace::gpu
