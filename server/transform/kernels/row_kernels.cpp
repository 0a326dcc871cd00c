#include "server/transform/kernels/row_kernels.h"

#include <cstring>

#include "server/decode/grow.h"

// Sizeless vectors cannot be array elements; machines with SVE run the NEON code.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/transform/kernels/row_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must be included before highway.h.
#include <hwy/highway.h>

#include "server/transform/kernels/values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headrace::server::transform {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void ResampleRows(const HorizontalJob& job, std::vector<std::uint8_t>&) {
  scalar::resample_rows(job);
}
void ResampleColumn(const std::uint8_t* in, std::ptrdiff_t stride, const std::int32_t* weights,
                    std::int32_t count, std::size_t size, std::uint8_t* out) {
  scalar::resample_column(in, stride, weights, count, size, out);
}
void WritePixels(const PixelFormat& format, const std::uint8_t* rgb, std::size_t width, const RowTarget& out,
                 bool) {
  scalar::write_pixels(format, rgb, static_cast<std::int32_t>(width), out);
}

#else

constexpr std::int32_t kHalf = 1 << (kPrecisionBits - 1);
constexpr std::size_t kRows = decode::kBlockRows;
static_assert(kRows == 16);

// in[i][0..15] to out[j * 16 + i]. Each round rotates the eight bits of (row, column) by one.
template <class Load, class Put>
HWY_INLINE void transpose(Load load, Put put) {
  const D8 d;
  hn::Vec<D8> v[16], t[16];
  for (std::size_t i = 0; i < 16; ++i) v[i] = load(i);
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
  for (std::size_t i = 0; i < 16; ++i) put(i, v[i]);
}

HWY_INLINE hn::Vec<DBytes> finish(hn::Vec<DInt> sum) {
  return hn::DemoteTo(DBytes(), hn::ShiftRight<kPrecisionBits>(sum));
}

// Transposes the 16 rows so that one vector holds one column; the horizontal pass then is as regular as the
// vertical.
void ResampleRows(const HorizontalJob& job, std::vector<std::uint8_t>& scratch) {
  const D8 d8;
  const DInt d32;
  const DBytes bytes;
  const auto& table = *job.columns;
  const std::size_t outputs = table.first.size();
  const auto range = table.inputs;
  const std::size_t in_bytes = static_cast<std::size_t>(range.end - range.begin) * 3;
  const std::size_t out_bytes = outputs * 3;
  const std::size_t turned_size = ((in_bytes + 15) & ~std::size_t{15}) * kRows;
  decode::grow(scratch, turned_size + ((out_bytes + 15) & ~std::size_t{15}) * kRows);
  auto* HWY_RESTRICT turned = scratch.data();
  auto* HWY_RESTRICT made = scratch.data() + turned_size;

  const std::ptrdiff_t skip = std::ptrdiff_t{range.begin - job.origin} * 3;
  for (std::size_t x = 0; x < in_bytes; x += 16) {
    transpose([&](std::size_t i) { return hn::LoadU(d8, job.in[i] + skip + x); },
              [&](std::size_t i, auto v) { hn::StoreU(v, d8, turned + (x + i) * kRows); });
  }
  for (std::size_t i = 0; i < outputs; ++i) {
    const std::int32_t* HWY_RESTRICT weights =
        table.weights.data() + i * static_cast<std::size_t>(table.taps);
    const auto count = static_cast<std::size_t>(table.count[i]);
    const auto* in = turned + static_cast<std::size_t>(table.first[i] - range.begin) * 3 * kRows;
    auto* out = made + (job.mirrored ? outputs - 1 - i : i) * 3 * kRows;
    for (std::size_t part = 0; part < kRows; part += hn::Lanes(d32)) {
      auto red = hn::Set(d32, kHalf), green = red, blue = red;
      const auto* column = in + part;
      for (std::size_t k = 0; k < count; ++k, column += 3 * kRows) {
        const auto weight = hn::Set(d32, weights[k]);
        red = hn::Add(red, hn::Mul(weight, hn::PromoteTo(d32, hn::LoadU(bytes, column))));
        green = hn::Add(green, hn::Mul(weight, hn::PromoteTo(d32, hn::LoadU(bytes, column + kRows))));
        blue = hn::Add(blue, hn::Mul(weight, hn::PromoteTo(d32, hn::LoadU(bytes, column + 2 * kRows))));
      }
      hn::StoreU(finish(red), bytes, out + part);
      hn::StoreU(finish(green), bytes, out + part + kRows);
      hn::StoreU(finish(blue), bytes, out + part + 2 * kRows);
    }
  }
  for (std::size_t x = 0; x < out_bytes; x += 16) {
    transpose([&](std::size_t i) { return hn::LoadU(d8, made + (x + i) * kRows); },
              [&](std::size_t i, auto v) { hn::StoreU(v, d8, job.out[i] + x); });
  }
}

void ResampleColumn(const std::uint8_t* HWY_RESTRICT in, std::ptrdiff_t stride,
                    const std::int32_t* HWY_RESTRICT weights, std::int32_t count, std::size_t size,
                    std::uint8_t* HWY_RESTRICT out) {
  const DInt d32;
  const DBytes bytes;
  const std::size_t n = hn::Lanes(d32);
  for (std::size_t x = 0; x < size; x += 4 * n) {
    auto a = hn::Set(d32, kHalf), b = a, c = a, d = a;
    const auto* from = in + x;
    for (std::int32_t k = 0; k < count; ++k, from += stride) {
      const auto weight = hn::Set(d32, weights[k]);
      a = hn::Add(a, hn::Mul(weight, hn::PromoteTo(d32, hn::LoadU(bytes, from))));
      b = hn::Add(b, hn::Mul(weight, hn::PromoteTo(d32, hn::LoadU(bytes, from + n))));
      c = hn::Add(c, hn::Mul(weight, hn::PromoteTo(d32, hn::LoadU(bytes, from + 2 * n))));
      d = hn::Add(d, hn::Mul(weight, hn::PromoteTo(d32, hn::LoadU(bytes, from + 3 * n))));
    }
    hn::StoreU(finish(a), bytes, out + x);
    hn::StoreU(finish(b), bytes, out + x + n);
    hn::StoreU(finish(c), bytes, out + x + 2 * n);
    hn::StoreU(finish(d), bytes, out + x + 3 * n);
  }
}

template <class As, bool kDivide>
void WriteFloats(const PixelFormat& format, const std::uint8_t* HWY_RESTRICT rgb, std::size_t width,
                 const RowTarget& out, bool streamed) {
  using Element = typename As::Element;
  const D8 d8;
  const DFloat d;
  const hn::Rebind<Element, DFloat> de;
  const bool planar = format.layout == PixelLayout::kNchw;
  // Half types fill only parts of a vector, which cannot be streamed; nor can vectors that span two cache
  // lines.
  const auto aligned = [&](const std::byte* to) {
    return reinterpret_cast<std::uintptr_t>(to) % (hn::Lanes(d) * sizeof(Element)) == 0;
  };
  if (sizeof(Element) != sizeof(float) || !planar || !aligned(out[0]) || !aligned(out[1]) || !aligned(out[2]))
    streamed = false;
  const bool normalized = format.normalized;
  const auto channel = [&](std::size_t c) {
    return Channel{hn::Set(d, format.mean[c]), hn::Set(d, format.std[c]), hn::Set(d, format.reciprocal[c])};
  };
  const Channel red = channel(0), green = channel(1), blue = channel(2);
  HWY_ALIGN std::uint8_t bytes[3][16];
  const auto at = [](std::byte* base, std::size_t i) { return reinterpret_cast<Element*>(base) + i; };
  const auto convert = [&](std::size_t x, const RowTarget& to) {
    hn::Vec<D8> r, g, b;
    hn::LoadInterleaved3(d8, rgb + 3 * x, r, g, b);
    hn::Store(r, d8, bytes[0]);
    hn::Store(g, d8, bytes[1]);
    hn::Store(b, d8, bytes[2]);
    for (std::size_t part = 0; part < 16; part += hn::Lanes(d)) {
      const auto vr = As::of(value_of<kDivide>(bytes[0] + part, red, normalized));
      const auto vg = As::of(value_of<kDivide>(bytes[1] + part, green, normalized));
      const auto vb = As::of(value_of<kDivide>(bytes[2] + part, blue, normalized));
      if (streamed) {
        if constexpr (sizeof(Element) == sizeof(float)) {
          hn::Stream(vr, de, at(to[0], part));
          hn::Stream(vg, de, at(to[1], part));
          hn::Stream(vb, de, at(to[2], part));
        }
      } else if (planar) {
        hn::StoreU(vr, de, at(to[0], part));
        hn::StoreU(vg, de, at(to[1], part));
        hn::StoreU(vb, de, at(to[2], part));
      } else {
        hn::StoreInterleaved3(vr, vg, vb, de, at(to[0], 3 * part));
      }
    }
  };
  std::size_t x = 0;
  for (; x + 16 <= width; x += 16) {
    convert(x, planar ? RowTarget{out[0] + x * sizeof(Element), out[1] + x * sizeof(Element),
                                  out[2] + x * sizeof(Element)}
                      : RowTarget{out[0] + 3 * x * sizeof(Element), nullptr, nullptr});
  }
  if (x == width) return;
  streamed = false;
  alignas(Element) std::byte last[3 * 16 * sizeof(Element)];
  const std::size_t plane = 16 * sizeof(Element), size = (width - x) * sizeof(Element);
  convert(x, RowTarget{last, last + plane, last + 2 * plane});
  if (planar) {
    for (std::size_t c = 0; c < 3; ++c) std::memcpy(out[c] + x * sizeof(Element), last + c * plane, size);
  } else {
    std::memcpy(out[0] + 3 * x * sizeof(Element), last, 3 * size);
  }
}

void WriteBytes(const PixelFormat& format, const std::uint8_t* HWY_RESTRICT rgb, std::size_t width,
                const RowTarget& out) {
  if (format.layout == PixelLayout::kNhwc) {
    std::memcpy(out[0], rgb, 3 * width);
    return;
  }
  const D8 d8;
  hn::Vec<D8> r, g, b;
  auto* const to_red = reinterpret_cast<std::uint8_t*>(out[0]);
  auto* const to_green = reinterpret_cast<std::uint8_t*>(out[1]);
  auto* const to_blue = reinterpret_cast<std::uint8_t*>(out[2]);
  std::size_t x = 0;
  for (; x + 16 <= width; x += 16) {
    hn::LoadInterleaved3(d8, rgb + 3 * x, r, g, b);
    hn::StoreU(r, d8, to_red + x);
    hn::StoreU(g, d8, to_green + x);
    hn::StoreU(b, d8, to_blue + x);
  }
  for (; x < width; ++x) {
    to_red[x] = rgb[3 * x];
    to_green[x] = rgb[3 * x + 1];
    to_blue[x] = rgb[3 * x + 2];
  }
}

template <class As>
void WriteAs(const PixelFormat& format, const std::uint8_t* rgb, std::size_t width, const RowTarget& out,
             bool streamed) {
  if (format.method == PixelFormat::Method::kDivision)
    return WriteFloats<As, true>(format, rgb, width, out, streamed);
  WriteFloats<As, false>(format, rgb, width, out, streamed);
}

void WritePixels(const PixelFormat& format, const std::uint8_t* rgb, std::size_t width, const RowTarget& out,
                 bool streamed) {
  switch (format.dtype) {
    case DType::kFloat32:
      return WriteAs<AsFloat>(format, rgb, width, out, streamed);
    case DType::kFloat16:
      return WriteAs<AsHalf>(format, rgb, width, out, streamed);
    case DType::kBFloat16:
      return WriteAs<AsBFloat>(format, rgb, width, out, streamed);
    default:
      return WriteBytes(format, rgb, width, out);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace headrace::server::transform
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::server::transform {

HWY_EXPORT(ResampleRows);
HWY_EXPORT(ResampleColumn);
HWY_EXPORT(WritePixels);

void resample_rows(const HorizontalJob& job, std::vector<std::uint8_t>& scratch) {
  HWY_DYNAMIC_DISPATCH(ResampleRows)(job, scratch);
}

void resample_column(const std::uint8_t* in, std::ptrdiff_t stride, const std::int32_t* weights,
                     std::int32_t count, std::size_t bytes, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(ResampleColumn)(in, stride, weights, count, bytes, out);
}

void write_pixels(const PixelFormat& format, const std::uint8_t* rgb, std::int32_t width,
                  const RowTarget& out, bool streamed) {
  if (format.method == PixelFormat::Method::kTable && format.dtype != DType::kUInt8) {
    return scalar::write_pixels(format, rgb, width, out);
  }
  HWY_DYNAMIC_DISPATCH(WritePixels)(format, rgb, static_cast<std::size_t>(width), out, streamed);
}

}  // namespace headrace::server::transform
#endif
