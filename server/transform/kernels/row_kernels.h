// The inner loops, compiled for every instruction set that the compiler knows; the best one is chosen at run
// time. Integer results are the same on all of them, and equal those of `scalar`, the reference in plain C++.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "clientlib/pixels/value_table.h"
#include "server/decode/decoder.h"
#include "server/transform/kernels/coefficients.h"

namespace headrace::server::transform {

/// Bytes that kernels may write past the end of an output row.
inline constexpr std::size_t kWriteSlack = decode::kRowSlack;

/// Horizontal pass over one block of rows.
struct HorizontalJob {
  const Coefficients* columns = nullptr;
  bool mirrored = false;    ///< output i goes to pixel outputs - 1 - i
  std::int32_t origin = 0;  ///< column that in[] points at
  /// All set (repeat a row if there are fewer); kRowSlack readable.
  std::array<const std::uint8_t*, decode::kBlockRows> in{};
  std::array<std::uint8_t*, decode::kBlockRows> out{};  ///< all set; kWriteSlack writable past the last pixel
};

/// How a row of RGB bytes becomes output values: value[c][b] is the value of channel c's byte b.
struct PixelFormat {
  DType dtype = DType::kUInt8;
  PixelLayout layout = PixelLayout::kNchw;
  std::int32_t channels = 3;  ///< 1: gray; the first channel's plane is the output, whatever the layout
  std::array<float, 3> mean{}, std{};
  std::array<float, 3> reciprocal{};  ///< of std
  bool normalized = false;
  bool luma = false;  ///< channels is 1: BT.601's Y of the three
  pixels::ValueTable value{};
  /// How a kernel computes the values: the first of these methods that reproduced `value` for all 256 bytes.
  enum class Method : std::uint8_t { kReciprocal, kDivision, kTable } method = Method::kTable;
};

/// Where one row is written. NHWC uses only the first pointer.
using RowTarget = std::array<std::byte*, 3>;

/// scratch: grown as needed.
void resample_rows(const HorizontalJob& job, std::vector<std::uint8_t>& scratch);
/// out[x] = clip(round(sum over k < count of weights[k] * in[k * stride + x])) for x < bytes. Reads kRowSlack
/// past each row's end, writes kWriteSlack past out's.
void resample_column(const std::uint8_t* in, std::ptrdiff_t stride, const std::int32_t* weights,
                     std::int32_t count, std::size_t bytes, std::uint8_t* out);
/// Writes exactly `width` pixels. Reads kRowSlack past the row's end. `streamed`: bypasses the caches, see
/// Scratch::set_streamed.
void write_pixels(const PixelFormat& format, const std::uint8_t* rgb, std::int32_t width,
                  const RowTarget& out, bool streamed = false);

namespace scalar {
void resample_rows(const HorizontalJob& job);
void resample_column(const std::uint8_t* in, std::ptrdiff_t stride, const std::int32_t* weights,
                     std::int32_t count, std::size_t bytes, std::uint8_t* out);
void write_pixels(const PixelFormat& format, const std::uint8_t* rgb, std::int32_t width,
                  const RowTarget& out);
}  // namespace scalar

using pixels::bits_of;

/// The tables and the method for an output. mean and std empty: values are x / 255.
PixelFormat make_pixel_format(const Output& output, const std::vector<double>& mean,
                              const std::vector<double>& std, std::int32_t channels = 3);

}  // namespace headrace::server::transform
