// Reads pixels of a source image and writes them to a row, a run of neighboring pixels at a time.
#pragma once

#include <cstdint>
#include <type_traits>

#include "clientlib/gpu/rows/job.h"
#include "clientlib/pixels/colors.h"

namespace headrace::gpu {

/// Pixels that a thread computes together, so that a warp's stores of one channel are neighbors in memory.
inline constexpr int kRun = 4;
/// A wide run: used instead if neighboring columns have neighboring sources, no color step applies, and
/// elements have 1 or 2 bytes.
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
  const std::uint32_t* table;  ///< 256 for each channel; unused where elements are bytes
  Erased erased;
};

template <int kChannels>
HEADRACE_HD pixels::Rgb pixel_at(const std::uint8_t* at) {
  if (kChannels == 1) return {at[0], at[0], at[0]};
  return {at[0], at[1], at[2]};
}

/// Reads a whole run of a source image. `at` is aligned to kCount bytes.
template <int kChannels, int kCount>
HEADRACE_HD void read_words(const std::uint8_t* at, pixels::Rgb (&out)[kCount]) {
  using Word = std::conditional_t<kCount == kWideRun, std::uint64_t, std::uint32_t>;
  static_assert(sizeof(Word) == kCount);
  Word words[kChannels];
  HEADRACE_UNROLL
  for (int i = 0; i < kChannels; ++i) words[i] = reinterpret_cast<const Word*>(at)[i];
  const auto byte = [&](int i) { return static_cast<std::uint8_t>(words[i / kCount] >> (i % kCount * 8)); };
  HEADRACE_UNROLL
  for (int i = 0; i < kCount; ++i)
    out[i] = {byte(i * kChannels), byte(i * kChannels + (kChannels - 1) / 2),
              byte(i * kChannels + kChannels - 1)};
}

/// Reads a run by words. False: the run's sources are not neighbors in rising or falling order from a word
/// boundary on.
template <int kChannels>
HEADRACE_HD bool fetch_words(const PixelTables& tables, std::int32_t x, std::int32_t row,
                             pixels::Rgb (&out)[kRun]) {
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
  pixels::Rgb read[kRun];
  read_words<kChannels>(at, read);
  HEADRACE_UNROLL
  for (int i = 0; i < kRun; ++i) out[i] = rising ? read[i] : read[kRun - 1 - i];
  return true;
}

/// Reads a wide run. False: a crop pads the image row. REQUIRES: RowHead::wide.
template <int kChannels>
HEADRACE_HD bool fetch_wide(const PixelTables& tables, const PixelPosition& at,
                            pixels::Rgb (&out)[kWideRun]) {
  const std::int32_t row = tables.down[at.y];
  if (row < 0) return false;
  const bool rising = tables.step > 0;
  const std::int32_t column = tables.across[at.x] + (rising ? 0 : (kWideRun - 1) * tables.step);
  pixels::Rgb read[kWideRun];
  read_words<kChannels>(tables.picture + column + row, read);
  HEADRACE_UNROLL
  for (int i = 0; i < kWideRun; ++i) out[i] = rising ? read[i] : read[kWideRun - 1 - i];
  return true;
}

/// Reads the row's pixels from `at` on, before the color steps.
template <int kChannels, int kCount>
HEADRACE_HD void fetch(const RowJob& job, const PixelTables& tables, const PixelPosition& at,
                       pixels::Rgb (&out)[kCount]) {
  std::int32_t y = at.y, x = at.x;
  if constexpr (kCount == kWideRun)
    if (fetch_wide<kChannels>(tables, at, out)) return;
  if constexpr (kCount == kRun)
    if (x + kRun <= job.out_width && fetch_words<kChannels>(tables, x, tables.down[y], out)) return;
  HEADRACE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const std::int32_t column = tables.across[x], row = tables.down[y];
    // If two crops pad this pixel, the later one decides. It has the lower number.
    const std::int32_t outside = column < row ? column : row;
    if (outside < 0) {
      const std::uint8_t* const fill = job.moves[-1 - outside].fill;
      out[i] = {fill[0], fill[1], fill[2]};
    } else {
      out[i] = pixel_at<kChannels>(tables.picture + column + row);
    }
    if (++x == job.out_width) {
      x = 0;
      ++y;
    }
  }
}

template <int kBytes>
HEADRACE_HD void store_element(std::uint8_t* to, std::uint32_t value) {
  if (kBytes == 4) *reinterpret_cast<std::uint32_t*>(to) = value;
  if (kBytes == 2) *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(value);
  if (kBytes == 1) *to = static_cast<std::uint8_t>(value);
}

/// Stores neighboring elements. A run of them is aligned and stored as one word or vector.
template <int kBytes, int kCount>
HEADRACE_HD void store_elements(std::uint8_t* to, const std::uint32_t* values) {
  const auto pair = [&](int i) { return values[i] | values[i + 1] << 16; };
  const auto four = [&](int i) {
    return values[i] | values[i + 1] << 8 | values[i + 2] << 16 | values[i + 3] << 24;
  };
  if constexpr (kCount == 1) {
    store_element<kBytes>(to, values[0]);
  } else if constexpr (kCount == kWideRun && kBytes == 2) {
    *reinterpret_cast<Vector16*>(to) = {{pair(0), pair(2), pair(4), pair(6)}};
  } else if constexpr (kCount == kWideRun) {
    *reinterpret_cast<std::uint64_t*>(to) = static_cast<std::uint64_t>(four(4)) << 32 | four(0);
  } else if constexpr (kBytes == 4) {
    *reinterpret_cast<Vector16*>(to) = {{values[0], values[1], values[2], values[3]}};
  } else if constexpr (kBytes == 2) {
    *reinterpret_cast<std::uint64_t*>(to) = static_cast<std::uint64_t>(pair(2)) << 32 | pair(0);
  } else {
    *reinterpret_cast<std::uint32_t*>(to) = four(0);
  }
}

/// Converts pixels to elements, applies erasing, and stores them. `to`: the row's first byte.
template <int kBytes, int kCount>
HEADRACE_HD void store(const RowJob& job, const RowValues& values, const pixels::Rgb (&made)[kCount],
                       std::int32_t pixel, std::uint8_t* to) {
  bool erased[kCount];
  HEADRACE_UNROLL
  for (int i = 0; i < kCount; ++i) erased[i] = false;
  if (values.erased.right > values.erased.left) {
    const Erased& gone = values.erased;
    HEADRACE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const std::int32_t y = (pixel + i) / job.out_width, x = pixel + i - y * job.out_width;
      erased[i] = y >= gone.top && y < gone.bottom && x >= gone.left && x < gone.right;
    }
  }
  const auto element = [&](int channel, int i) -> std::uint32_t {
    if (erased[i]) return job.erased[channel];
    const std::uint8_t byte = channel == 0 ? made[i].r : channel == 1 ? made[i].g : made[i].b;
    return kBytes == 1 ? byte : values.table[channel * 256 + byte];
  };
  if (job.interleaved) {
    std::uint32_t all[3 * kCount];
    HEADRACE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      HEADRACE_UNROLL
      for (int c = 0; c < 3; ++c) all[3 * i + c] = element(c, i);
    }
    HEADRACE_UNROLL
    for (int part = 0; part < 3; ++part)
      store_elements<kBytes, kCount>(to + (static_cast<std::int64_t>(pixel) * 3 + part * kCount) * kBytes,
                                     all + part * kCount);
    return;
  }
  const std::int64_t plane = static_cast<std::int64_t>(job.out_height) * job.out_width;
  HEADRACE_UNROLL
  for (int c = 0; c < 3; ++c) {
    if (c >= job.out_channels) break;
    std::uint32_t all[kCount];
    HEADRACE_UNROLL
    for (int i = 0; i < kCount; ++i) all[i] = element(c, i);
    store_elements<kBytes, kCount>(to + (c * plane + pixel) * kBytes, all);
  }
}

}  // namespace headrace::gpu
