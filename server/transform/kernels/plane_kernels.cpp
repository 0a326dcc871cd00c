#include "server/transform/kernels/plane_kernels.h"

#include <algorithm>
#include <cstring>

// Sizeless vectors cannot be array elements; machines with SVE run the NEON code.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/transform/kernels/plane_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must be included before highway.h.
#include <hwy/highway.h>

#include "server/transform/kernels/prefetch.h"
#include "server/transform/kernels/values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headrace::server::transform {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void CutPlanes(const PlaneCut& cut, Strip rows, std::uint8_t* out) {
  scalar::cut_planes(cut, rows, out);
}
void TransposePlane(const std::uint8_t* in, std::size_t height, std::size_t width, Strip columns,
                    std::uint8_t* out) {
  scalar::transpose_plane(in, height, width, columns, out);
}

#else

// --- cut_planes

template <class D>
HWY_INLINE hn::Vec<D> reverse(D d, hn::Vec<D> v) {
  HWY_ALIGN static constexpr std::uint8_t kReversed[16] = {15, 14, 13, 12, 11, 10, 9, 8,
                                                           7,  6,  5,  4,  3,  2,  1, 0};
  return hn::ReverseBlocks(d, hn::TableLookupBytes(v, hn::LoadDup128(d, kReversed)));
}

/// to[i] = from[i], or from[count - 1 - i]. The last vector overlaps the one before, so that nothing beyond
/// `count` is read or written.
template <bool kMirror, class D>
HWY_INLINE void move_vectors(D d, const std::uint8_t* HWY_RESTRICT from, std::size_t count,
                             std::uint8_t* HWY_RESTRICT to) {
  const std::size_t n = hn::Lanes(d);
  const auto move = [&](std::size_t x) {
    auto v = hn::LoadU(d, from + (kMirror ? count - n - x : x));
    if constexpr (kMirror) v = reverse(d, v);
    hn::StoreU(v, d, to + x);
  };
  std::size_t x = 0;
  for (; x + n <= count; x += n) move(x);
  if (x < count) move(count - n);
}

template <bool kMirror>
HWY_INLINE void move_pixels(const std::uint8_t* HWY_RESTRICT from, std::size_t count,
                            std::uint8_t* HWY_RESTRICT to) {
  const hn::ScalableTag<std::uint8_t> wide;
  if (count >= hn::Lanes(wide)) return move_vectors<kMirror>(wide, from, count, to);
  if (count >= 16) return move_vectors<kMirror>(D8(), from, count, to);
  for (std::size_t x = 0; x < count; ++x) to[x] = from[kMirror ? count - 1 - x : x];
}

/// The same for interleaved RGB, into three planes that are `plane` bytes apart.
template <bool kMirror>
HWY_INLINE void split_pixels(const std::uint8_t* HWY_RESTRICT from, std::size_t count, std::size_t plane,
                             std::uint8_t* HWY_RESTRICT to) {
  const auto split = [&](auto d) {
    const std::size_t n = hn::Lanes(d);
    const auto move = [&](std::size_t x) {
      hn::Vec<decltype(d)> r, g, b;
      hn::LoadInterleaved3(d, from + 3 * (kMirror ? count - n - x : x), r, g, b);
      if constexpr (kMirror) {
        r = reverse(d, r);
        g = reverse(d, g);
        b = reverse(d, b);
      }
      hn::StoreU(r, d, to + x);
      hn::StoreU(g, d, to + plane + x);
      hn::StoreU(b, d, to + 2 * plane + x);
    };
    std::size_t x = 0;
    for (; x + n <= count; x += n) move(x);
    if (x < count) move(count - n);
  };
  const hn::ScalableTag<std::uint8_t> wide;
  if (count >= hn::Lanes(wide)) return split(wide);
  if (count >= 16) return split(D8());
  for (std::size_t x = 0; x < count; ++x)
    for (std::size_t c = 0; c < 3; ++c) to[c * plane + x] = from[3 * (kMirror ? count - 1 - x : x) + c];
}

/// Columns of the window in the order of writing: padding, `inside` pixels from `first` on, padding.
struct Columns {
  std::size_t before, inside;
  std::int32_t first;
};

template <bool kMirror>
HWY_INLINE Columns columns_of(const PlaneCut& cut) {
  const std::int32_t left = std::clamp(-cut.window.left, 0, cut.window.width);
  const std::int32_t end = std::clamp(cut.from.width - cut.window.left, left, cut.window.width);
  return {static_cast<std::size_t>(kMirror ? cut.window.width - end : left),
          static_cast<std::size_t>(end - left), end > left ? cut.window.left + left : 0};
}

/// Writes a row's padding, and perhaps more: the pixels are written afterwards. source: the picture's row in
/// this channel.
template <bool kMirror>
void pad_row(const PlaneCut& cut, const Columns& columns, std::uint8_t fill, const std::uint8_t* source,
             std::uint8_t* to) {
  const auto width = static_cast<std::size_t>(cut.window.width);
  const std::size_t after = columns.before + columns.inside;
  if (cut.mode == PaddingMode::kConstant) {
    const D8 d;
    if (width >= 16 && columns.before <= 16 && width - after <= 16) {
      hn::StoreU(hn::Set(d, fill), d, to);
      hn::StoreU(hn::Set(d, fill), d, to + width - 16);
      return;
    }
    std::memset(to, fill, columns.before);
    std::memset(to + after, fill, width - after);
    return;
  }
  for (std::size_t x = columns.before == 0 ? after : 0; x < width;
       x = x + 1 == columns.before ? after : x + 1) {
    const auto column = static_cast<std::int32_t>(kMirror ? width - 1 - x : x);
    to[x] = source[padded_index(cut.window.left + column, cut.from.width, cut.mode) * cut.from.pixel];
  }
}

/// Planes with rows of up to two vectors and constant padding: small pictures, which have many rows of few
/// pixels.
template <bool kMirror>
void CutSmall(const PlaneCut& cut, Strip rows, const Columns& columns, std::uint8_t* HWY_RESTRICT out) {
  const D8 d;
  const PixelView& from = cut.from;
  const auto width = static_cast<std::size_t>(cut.window.width);
  const std::size_t last = columns.inside - 16;
  for (std::size_t c = 0; c < cut.channels; ++c) {
    const std::uint8_t* const plane = from.at + static_cast<std::ptrdiff_t>(c) * from.plane + columns.first;
    const auto fill = hn::Set(d, cut.fill[c]);
    const auto first = static_cast<std::int32_t>(rows.first);
    for (std::int32_t y = first; y < first + static_cast<std::int32_t>(rows.count); ++y, out += width) {
      const std::int32_t row = cut.window.top + (cut.flipped ? cut.window.height - 1 - y : y);
      hn::StoreU(fill, d, out);
      hn::StoreU(fill, d, out + width - 16);
      if (row < 0 || row >= from.height) {
        for (std::size_t x = 16; x + 16 < width; x += 16) hn::StoreU(fill, d, out + x);
        continue;
      }
      const std::uint8_t* HWY_RESTRICT const source = plane + row * from.row;
      auto left = hn::LoadU(d, source), right = hn::LoadU(d, source + last);
      if constexpr (kMirror) {
        const auto turned = reverse(d, left);
        left = reverse(d, right);
        right = turned;
      }
      hn::StoreU(left, d, out + columns.before);
      hn::StoreU(right, d, out + columns.before + last);
    }
  }
}

/// A picture larger than this is not in the cache, and its caller has not prefetched it.
constexpr std::ptrdiff_t kFar = 16 * 1024;
constexpr std::size_t kRowsAhead = 8;

template <bool kMirror>
void CutAs(const PlaneCut& cut, Strip rows, std::uint8_t* out) {
  const PixelView& from = cut.from;
  const auto height = static_cast<std::size_t>(cut.window.height);
  const auto width = static_cast<std::size_t>(cut.window.width);
  const std::size_t plane = rows.count * width;
  const Columns columns = columns_of<kMirror>(cut);
  const bool padded = columns.inside < width;
  const std::size_t after = width - columns.before - columns.inside;
  if (from.pixel == 1 && cut.mode == PaddingMode::kConstant && columns.inside >= 16 && columns.inside <= 32 &&
      columns.before <= 16 && after <= 16)
    return CutSmall<kMirror>(cut, rows, columns, out);
  const bool split = from.pixel == 3 && cut.channels == 3;
  const auto source_row_of = [&](std::size_t y) {
    const auto row = static_cast<std::int32_t>(cut.flipped ? height - 1 - y : y);
    return padded_index(cut.window.top + row, from.height, cut.mode);
  };
  const auto ask_for = [&](std::size_t y) {
    const std::int32_t source_row = y < height ? source_row_of(y) : -1;
    if (source_row >= 0)
      prefetch({from.at + source_row * from.row + columns.first * from.pixel,
                columns.inside * static_cast<std::size_t>(from.pixel)});
  };
  // The hardware does not predict the rows of a large picture.
  const bool far = from.pixel == 3 && from.row * from.height > kFar;
  if (far && rows.first == 0)
    for (std::size_t y = 0; y < kRowsAhead; ++y) ask_for(y);
  for (std::size_t y = 0; y < rows.count; ++y) {
    if (far) ask_for(rows.first + y + kRowsAhead);
    const std::int32_t source_row = source_row_of(rows.first + y);
    std::uint8_t* const to = out + y * width;
    if (source_row < 0) {
      for (std::size_t c = 0; c < cut.channels; ++c) std::memset(to + c * plane, cut.fill[c], width);
      continue;
    }
    const std::uint8_t* const source = from.at + source_row * from.row;
    const std::uint8_t* const inside = source + columns.first * from.pixel;
    if (padded)
      for (std::size_t c = 0; c < cut.channels; ++c)
        pad_row<kMirror>(cut, columns, cut.fill[c], source + static_cast<std::ptrdiff_t>(c) * from.plane,
                         to + c * plane);
    if (split) split_pixels<kMirror>(inside, columns.inside, plane, to + columns.before);
    for (std::size_t c = 0; c < cut.channels; ++c) {
      const std::ptrdiff_t channel = static_cast<std::ptrdiff_t>(c) * from.plane;
      std::uint8_t* const row_of_plane = to + c * plane;
      if (from.pixel == 1) {
        move_pixels<kMirror>(inside + channel, columns.inside, row_of_plane + columns.before);
      } else if (!split) {
        for (std::size_t x = 0; x < columns.inside; ++x)
          row_of_plane[columns.before + x] =
              inside[channel + 3 * static_cast<std::ptrdiff_t>(kMirror ? columns.inside - 1 - x : x)];
      }
    }
  }
}

void CutPlanes(const PlaneCut& cut, Strip rows, std::uint8_t* HWY_RESTRICT out) {
  if (cut.mirrored) return CutAs<true>(cut, rows, out);
  CutAs<false>(cut, rows, out);
}

// --- transpose_plane

/// Transposes blocks of 16 bytes, `stride` bytes apart.
template <class D>
HWY_INLINE void store_blocks(D d, hn::Vec<D> v, std::uint8_t* HWY_RESTRICT out, std::size_t stride) {
  if constexpr (hn::MaxLanes(D()) == 16) {
    hn::StoreU(v, d, out);
  } else {
    const hn::Half<D> half;
    store_blocks(half, hn::LowerHalf(half, v), out, stride);
    store_blocks(half, hn::UpperHalf(half, v), out + hn::Lanes(half) / 16 * stride, stride);
  }
}

/// Transposes 16 rows of one vector each: every block of the vectors is 16 x 16 pixels. Each round rotates
/// the eight bits of (row, column) by one.
template <class D>
HWY_INLINE void transpose_blocks(D d, const std::uint8_t* HWY_RESTRICT in, std::size_t in_stride,
                                 std::uint8_t* HWY_RESTRICT out, std::size_t out_stride) {
  hn::Vec<D> v[16], t[16];
  for (std::size_t i = 0; i < 16; ++i) v[i] = hn::LoadU(d, in + i * in_stride);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < 8; ++i) {
      t[2 * i] = hn::InterleaveLower(d, v[i], v[i + 8]);
      t[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + 8]);
    }
    for (std::size_t i = 0; i < 8; ++i) {
      v[2 * i] = hn::InterleaveLower(d, t[i], t[i + 8]);
      v[2 * i + 1] = hn::InterleaveUpper(d, t[i], t[i + 8]);
    }
  }
  for (std::size_t i = 0; i < 16; ++i) store_blocks(d, v[i], out + i * out_stride, 16 * out_stride);
}

void TransposePlane(const std::uint8_t* HWY_RESTRICT in, std::size_t height, std::size_t width, Strip columns,
                    std::uint8_t* HWY_RESTRICT out) {
  if (height < 16 || columns.count < 16) return scalar::transpose_plane(in, height, width, columns, out);
  in += columns.first;
  // The last block of a side overlaps the one before.
  const auto next = [](std::size_t at, std::size_t step, std::size_t side) {
    return at + step == side ? side : std::min(at + step, side - step);
  };
  const auto transpose = [&](auto d) {
    const std::size_t n = hn::Lanes(d);
    for (std::size_t x = 0; x < columns.count; x = next(x, n, columns.count))
      for (std::size_t y = 0; y < height; y = next(y, 16, height))
        transpose_blocks(d, in + y * width + x, width, out + x * height + y, height);
  };
  const hn::ScalableTag<std::uint8_t> wide;
  if (columns.count >= hn::Lanes(wide)) return transpose(wide);
  transpose(D8());
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace headrace::server::transform
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::server::transform {

HWY_EXPORT(CutPlanes);
HWY_EXPORT(TransposePlane);

void cut_planes(const PlaneCut& cut, Strip rows, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(CutPlanes)(cut, rows, out);
}

void transpose_plane(const std::uint8_t* in, std::size_t height, std::size_t width, Strip columns,
                     std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(TransposePlane)(in, height, width, columns, out);
}

}  // namespace headrace::server::transform
#endif
