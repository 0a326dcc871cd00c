// Reads pixels of a source image and writes them to a row, a run of neighboring pixels at a time.
#pragma once

#include <cstdint>
#include <type_traits>

#include "clientlib/gpu/rows/job.h"
#include "clientlib/gpu/rows/lifted.h"
#include "clientlib/pixels/colors.h"

namespace headrace::gpu {

/// Pixels that a thread computes together, so that a warp's stores of one channel are neighbors in memory.
inline constexpr int kRun = 4;
/// A wide run: used instead if neighboring columns have neighboring sources, and elements have 1 or 2 bytes.
inline constexpr int kWideRun = 8;

struct alignas(16) Vector16 {
  std::uint32_t words[4];
};

/// The source of each output column and row, in bytes from the start of the source image; see RowHead.
struct PixelTables {
  const std::int32_t* across;
  const std::int32_t* down;
  const std::uint8_t* picture;
  /// Bytes from each column's source to the next one's: the channels, or minus the channels for a mirrored
  /// image. 0: the columns are not all neighbors in the source image.
  std::int32_t step;
  bool wide;  ///< each group of kWideRun columns reads neighboring source pixels from an aligned address
};

/// A pixel of the row: its number, and its row and column in the image.
struct PixelPosition {
  std::int32_t pixel, y, x;
  HEADRACE_HD PixelPosition(std::int32_t number, std::int32_t width)
      : pixel(number), y(number / width), x(number - number / width * width) {}
  /// Adds `by` without a division, which would cost as much as the rest of a pixel's address.
  HEADRACE_HD void advance(const PixelPosition& by, std::int32_t width) {
    pixel += by.pixel;
    y += by.y;
    x += by.x;
    if (x < width) return;
    x -= width;
    ++y;
  }
};

/// A rectangle of the row: [top, bottom) x [left, right).
struct Erased {
  std::int32_t top, left, bottom, right;
};

struct RowValues {
  const std::uint32_t* table;  ///< 256 for each channel; for Conversion::kTableHalf and kTable32
  Erased erased;
};

template <class Pixel>
HEADRACE_HD Pixel pixel_of(const std::uint8_t* rgb) {
  if constexpr (std::is_same_v<Pixel, LiftedRgb>)
    return {lift(rgb[0]), lift(rgb[1]), lift(rgb[2])};
  else
    return {rgb[0], rgb[1], rgb[2]};
}

template <int kChannels, class Pixel>
HEADRACE_HD Pixel pixel_at(const std::uint8_t* at) {
  if constexpr (kChannels == 3) return pixel_of<Pixel>(at);
  const std::uint8_t gray[3] = {*at, *at, *at};
  return pixel_of<Pixel>(gray);
}

/// A whole run of a source image.
template <int kChannels, int kCount>
struct SourceRun {
  using Word = std::conditional_t<kCount == kWideRun, std::uint64_t, std::uint32_t>;
  static_assert(sizeof(Word) == kCount);
  Word words[kChannels];

  /// `at` is aligned to kCount bytes.
  HEADRACE_HD explicit SourceRun(const std::uint8_t* at) {
    HEADRACE_UNROLL
    for (int i = 0; i < kChannels; ++i) words[i] = reinterpret_cast<const Word*>(at)[i];
  }
  template <class Pixel>
  HEADRACE_HD Pixel pixel(int i) const {
    const auto channel = [&](int at) {
      const auto word = static_cast<std::uint32_t>(words[at / kCount] >> (at % kCount / 4 * 32));
      if constexpr (std::is_same_v<Pixel, LiftedRgb>)
        return lift_byte(word, at % 4);
      else
        return static_cast<std::uint8_t>(word >> (at % 4 * 8));
    };
    return {channel(i * kChannels), channel(i * kChannels + (kChannels - 1) / 2),
            channel(i * kChannels + kChannels - 1)};
  }
};

/// Reads a run. `rising`: its columns rise in the source image too, else they fall. `first`: the first byte
/// in memory, aligned to kCount bytes.
template <int kChannels, class Pixel, int kCount>
HEADRACE_HD void read_run(const std::uint8_t* first, bool rising, Pixel (&out)[kCount]) {
  const SourceRun<kChannels, kCount> run(first);
  if (rising) {
    HEADRACE_UNROLL
    for (int i = 0; i < kCount; ++i) out[i] = run.template pixel<Pixel>(i);
  } else {
    HEADRACE_UNROLL
    for (int i = 0; i < kCount; ++i) out[i] = run.template pixel<Pixel>(kCount - 1 - i);
  }
}

/// Reads a run by words. False: the run's sources are not neighbors in rising or falling order from a word
/// boundary on.
template <int kChannels, class Pixel>
HEADRACE_HD bool fetch_words(const PixelTables& tables, std::int32_t x, std::int32_t row,
                             Pixel (&out)[kRun]) {
  const std::int32_t first = tables.across[x];
  std::int32_t last = first + (kRun - 1) * tables.step;
  bool rising = tables.step > 0;
  if (tables.step == 0) {
    last = tables.across[x + kRun - 1];
    bool falling = true;
    rising = true;
    HEADRACE_UNROLL
    for (int i = 1; i < kRun; ++i) {
      const std::int32_t step = tables.across[x + i] - tables.across[x + i - 1];
      rising = rising && step == kChannels;
      falling = falling && step == -kChannels;
    }
    if (first < 0 || last < 0 || !(rising || falling)) return false;
  }
  if (row < 0) return false;
  const std::uint8_t* const at = tables.picture + (rising ? first : last) + row;
  if ((reinterpret_cast<std::uintptr_t>(at) & 3U) != 0) return false;
  read_run<kChannels>(at, rising, out);
  return true;
}

/// Reads a run whose pixels are neighbors in the source image, or fills it if a crop pads this row. REQUIRES:
/// PixelTables::wide.
template <int kChannels, class Pixel, int kCount>
HEADRACE_HD void fetch_neighbors(const RowJob& job, const PixelTables& tables, const PixelPosition& at,
                                 Pixel (&out)[kCount]) {
  const std::int32_t row = tables.down[at.y], column = tables.across[at.x];
  const bool rising = tables.step > 0;
  if (row >= 0)
    return read_run<kChannels>(tables.picture + row + column + (rising ? 0 : (kCount - 1) * tables.step),
                               rising, out);
  HEADRACE_UNROLL
  for (int i = 0; i < kCount; ++i) out[i] = pixel_of<Pixel>(job.moves[-1 - row].fill);  // a crop's padding
}

/// Reads a run, or one pixel.
template <int kChannels, class Pixel, int kCount>
HEADRACE_HD void fetch_any(const RowJob& job, const PixelTables& tables, const PixelPosition& at,
                           Pixel (&out)[kCount]) {
  std::int32_t y = at.y, x = at.x;
  if constexpr (kCount == kRun)
    if (x + kRun <= job.out_width && fetch_words<kChannels>(tables, x, tables.down[y], out)) return;
  HEADRACE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const std::int32_t column = tables.across[x], row = tables.down[y];
    // If two crops pad this pixel, the later one decides. It has the lower number.
    const std::int32_t outside = column < row ? column : row;
    out[i] = outside < 0 ? pixel_of<Pixel>(job.moves[-1 - outside].fill)
                         : pixel_at<kChannels, Pixel>(tables.picture + column + row);
    if (++x == job.out_width) {
      x = 0;
      ++y;
    }
  }
}

/// Reads the row's pixels from `at` on, before the color steps. A wide run REQUIRES PixelTables::wide.
template <int kChannels, class Pixel, int kCount>
HEADRACE_HD void fetch(const RowJob& job, const PixelTables& tables, const PixelPosition& at,
                       Pixel (&out)[kCount]) {
  if constexpr (kCount > 1)
    if (kCount == kWideRun || tables.wide) return fetch_neighbors<kChannels>(job, tables, at, out);
  if constexpr (kCount != kWideRun) fetch_any<kChannels>(job, tables, at, out);
}

/// A row's element before it is stored: bits, or the float that is rounded to a half type.
template <Conversion kConversion>
using Element = std::conditional_t<kConversion == Conversion::kAffineFloat16 ||
                                       kConversion == Conversion::kAffineBFloat16,
                                   float, std::uint32_t>;

template <Conversion kConversion>
inline constexpr int kElementBytes = kConversion == Conversion::kBytes          ? 1
                                     : kConversion == Conversion::kTableFloat32 ? 4
                                                                                : 2;

/// Two neighboring elements of two bytes.
template <Conversion kConversion>
HEADRACE_HD std::uint32_t pair_of(Element<kConversion> low, Element<kConversion> high) {
  if constexpr (std::is_same_v<Element<kConversion>, std::uint32_t>) {
    return low | high << 16;
  } else {
    constexpr bool kHalf = kConversion == Conversion::kAffineFloat16;
#ifdef __CUDA_ARCH__
    std::uint32_t pair;
    if (kHalf)
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    const auto bits = [](float value) -> std::uint32_t {
      return kHalf ? pixels::half_of(value) : pixels::bfloat_of(value);
    };
    return bits(low) | bits(high) << 16;
#endif
  }
}

/// Four neighboring elements of one byte.
HEADRACE_HD inline std::uint32_t four_of(const std::uint32_t* values) {
  return values[0] | values[1] << 8 | values[2] << 16 | values[3] << 24;
}

/// Stores neighboring elements. A run of them is aligned and stored as one word or vector.
template <Conversion kConversion, int kCount>
HEADRACE_HD void store_elements(std::uint8_t* to, const Element<kConversion>* values) {
  constexpr int kBytes = kElementBytes<kConversion>;
  const auto pair = [&](int i) { return pair_of<kConversion>(values[i], values[i + 1]); };
  if constexpr (kCount == 1 && kBytes == 4) {
    *reinterpret_cast<std::uint32_t*>(to) = values[0];
  } else if constexpr (kCount == 1 && kBytes == 2) {
    *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(pair_of<kConversion>(values[0], {}));
  } else if constexpr (kCount == 1) {
    *to = static_cast<std::uint8_t>(values[0]);
  } else if constexpr (kCount == kWideRun && kBytes == 2) {
    *reinterpret_cast<Vector16*>(to) = {{pair(0), pair(2), pair(4), pair(6)}};
  } else if constexpr (kCount == kWideRun) {
    *reinterpret_cast<std::uint64_t*>(to) =
        static_cast<std::uint64_t>(four_of(values + 4)) << 32 | four_of(values);
  } else if constexpr (kBytes == 4) {
    *reinterpret_cast<Vector16*>(to) = {{values[0], values[1], values[2], values[3]}};
  } else if constexpr (kBytes == 2) {
    *reinterpret_cast<std::uint64_t*>(to) = static_cast<std::uint64_t>(pair(2)) << 32 | pair(0);
  } else {
    *reinterpret_cast<std::uint32_t*>(to) = four_of(values);
  }
}

/// The element for a channel's byte or lifted byte.
template <Conversion kConversion, class Channel>
HEADRACE_HD Element<kConversion> element_of(const RowJob& job, const RowValues& values, int channel,
                                            Channel from) {
  if constexpr (std::is_same_v<Element<kConversion>, float>)
    return multiply_add(fraction_of(from), job.affine[channel].scale, job.affine[channel].offset);
  else if constexpr (kConversion == Conversion::kBytes)
    return byte_of(from);
  else
    return values.table[channel * 256 + byte_of(from)];
}

/// Stores the elements of neighboring pixels. `element`(c, i) gives channel c of pixel i. `to`: the row's
/// first byte.
template <Conversion kConversion, int kCount, class MakeElement>
HEADRACE_HD void store_pixels(const RowJob& job, std::int32_t pixel, std::uint8_t* to,
                              const MakeElement& element) {
  constexpr int kBytes = kElementBytes<kConversion>;
  if (job.interleaved) {
    Element<kConversion> all[3 * kCount];
    HEADRACE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      HEADRACE_UNROLL
      for (int c = 0; c < 3; ++c) all[3 * i + c] = element(c, i);
    }
    HEADRACE_UNROLL
    for (int part = 0; part < 3; ++part)
      store_elements<kConversion, kCount>(
          to + (static_cast<std::int64_t>(pixel) * 3 + part * kCount) * kBytes, all + part * kCount);
    return;
  }
  const std::int64_t plane = static_cast<std::int64_t>(job.out_height) * job.out_width;
  HEADRACE_UNROLL
  for (int c = 0; c < 3; ++c) {
    if (c >= job.out_channels) break;
    Element<kConversion> all[kCount];
    HEADRACE_UNROLL
    for (int i = 0; i < kCount; ++i) all[i] = element(c, i);
    store_elements<kConversion, kCount>(to + (c * plane + pixel) * kBytes, all);
  }
}

/// Converts pixels to elements, applies erasing, and stores them. `to`: the row's first byte.
template <Conversion kConversion, int kCount, class Pixel>
HEADRACE_HD void store(const RowJob& job, const RowValues& values, const Pixel (&made)[kCount],
                       std::int32_t pixel, std::uint8_t* to) {
  const auto element = [&](int c, int i) {
    return element_of<kConversion>(job, values, c, c == 0 ? made[i].r : c == 1 ? made[i].g : made[i].b);
  };
  const Erased& gone = values.erased;
  if (gone.right <= gone.left) return store_pixels<kConversion, kCount>(job, pixel, to, element);
  bool erased[kCount];
  HEADRACE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const std::int32_t y = (pixel + i) / job.out_width, x = pixel + i - y * job.out_width;
    erased[i] = y >= gone.top && y < gone.bottom && x >= gone.left && x < gone.right;
  }
  store_pixels<kConversion, kCount>(job, pixel, to, [&](int c, int i) -> Element<kConversion> {
    if (!erased[i]) return element(c, i);
    if constexpr (std::is_same_v<Element<kConversion>, float>)
      return pixels::float_of(job.erased[c]);
    else
      return job.erased[c];
  });
}

}  // namespace headrace::gpu
