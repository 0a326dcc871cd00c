// The loops of cuts: a window of bare pixels is mirrored, turned and converted, plane by plane, straight into
// a row of the batch. As in row_kernels.h: compiled for every instruction set that the compiler knows, with
// `scalar` as the reference.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "server/decode/decoder.h"
#include "server/transform/kernels/row_kernels.h"

namespace headrace::server::transform {

/// A picture's pixel (y, x) of channel c is at address at + c * plane + y * row + x * pixel.
struct PixelView {
  const std::uint8_t* at = nullptr;
  std::ptrdiff_t plane = 0;
  std::ptrdiff_t row = 0;
  std::ptrdiff_t pixel = 1;  ///< 1, or 3 for interleaved RGB, whose `plane` is 1
  std::int32_t width = 0, height = 0;
};

/// A window of a picture. Reads only its pixels: there may be no memory after them.
struct PlaneCut {
  PixelView from;
  std::size_t channels = 3;
  decode::Rect window;  ///< not empty; `mode` and `fill` define what is beyond the picture
  PaddingMode mode = PaddingMode::kConstant;
  std::array<std::uint8_t, 3> fill{};
  bool mirrored = false, flipped = false;  ///< left to right, top to bottom
};

/// A part of the output, small enough to be still in the L1 cache when it is read: `count` rows or columns.
struct Strip {
  std::size_t first, count;
};

/// Writes the strip's rows of the window: `channels` planes of count x width, concatenated.
void cut_planes(const PlaneCut& cut, Strip rows, std::uint8_t* out);

/// The strip's columns of a plane of height x width become rows: a plane of count x height.
void transpose_plane(const std::uint8_t* in, std::size_t height, std::size_t width, Strip columns,
                     std::uint8_t* out);

/// Writes exactly `pixels` pixels of format.channels planes, which are `plane` bytes apart; NCHW writes
/// planes that are `out_plane` values apart. `streamed`: bypasses the caches, see Scratch::set_streamed.
void write_planes(const PixelFormat& format, const std::uint8_t* in, std::ptrdiff_t plane, std::size_t pixels,
                  std::byte* out, std::size_t out_plane, bool streamed = false);

/// Copies without filling the caches.
void copy_streamed(const std::uint8_t* in, std::size_t size, std::uint8_t* out);

/// After streamed writes, before other threads may read them.
void flush_streamed();

inline void copy_bytes(const std::uint8_t* in, std::size_t size, std::uint8_t* out, bool streamed) {
  if (streamed) return copy_streamed(in, size, out);
  std::memcpy(out, in, size);
}

namespace scalar {
void cut_planes(const PlaneCut& cut, Strip rows, std::uint8_t* out);
void transpose_plane(const std::uint8_t* in, std::size_t height, std::size_t width, Strip columns,
                     std::uint8_t* out);
void write_planes(const PixelFormat& format, const std::uint8_t* in, std::ptrdiff_t plane, std::size_t pixels,
                  std::byte* out, std::size_t out_plane);
}  // namespace scalar

}  // namespace headrace::server::transform
