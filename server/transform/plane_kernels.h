// The loops of cuts: pictures of bare pixels from which a window is taken, mirrored, turned and converted,
// plane by plane, straight into a row of the batch. As kernels.h: for every instruction set that the compiler
// knows, with `scalar` as their twin.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "server/decode/decoder.h"
#include "server/transform/kernels.h"
#include "server/transform/plan.h"

namespace headrace::server::transform {

/// Where a picture's pixel (y, x) of channel c lies: at + c * plane + y * row + x * pixel.
struct PixelView {
  const std::uint8_t* at = nullptr;
  std::ptrdiff_t plane = 0;
  std::ptrdiff_t row = 0;
  std::ptrdiff_t pixel = 1;  ///< 1, or 3 of interleaved RGB, whose `plane` is 1
  std::int32_t width = 0, height = 0;
};

/// A window of a picture. Reads its pixels alone: there need be nothing behind them.
struct PlaneCut {
  PixelView from;
  std::size_t channels = 3;
  decode::Rect window;  ///< not empty; beyond the picture `mode` and `fill` say what is there
  PaddingMode mode = PaddingMode::kConstant;
  std::array<std::uint8_t, 3> fill{};
  bool mirrored = false, flipped = false;  ///< left to right, top to bottom
};

/// A part of what is made, so that it is still in the nearest cache when it is read: `count` rows, or
/// columns.
struct Strip {
  std::size_t first, count;
};

/// Of the window's rows as they are written, the strip's: `channels` planes of count x width, one behind the
/// other, and nothing else.
void cut_planes(const PlaneCut& cut, Strip rows, std::uint8_t* out);

/// Of a plane of height x width, the strip's columns become rows: a plane of count x height.
void transpose_plane(const std::uint8_t* in, std::size_t height, std::size_t width, Strip columns,
                     std::uint8_t* out);

/// Writes exactly `pixels` pixels of format.channels planes, which lie `plane` bytes apart; NCHW writes
/// planes that lie `out_plane` values apart. `streamed`: past the caches, see Scratch::set_streamed.
void write_planes(const PixelFormat& format, const std::uint8_t* in, std::ptrdiff_t plane, std::size_t pixels,
                  std::byte* out, std::size_t out_plane, bool streamed = false);

/// Copies past the caches.
void copy_streamed(const std::uint8_t* in, std::size_t size, std::uint8_t* out);

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
