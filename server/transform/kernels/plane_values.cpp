#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>

#include "server/transform/kernels/plane_kernels.h"

// Sizeless vectors cannot be array elements; machines with SVE run the NEON code.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/transform/kernels/plane_values.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must be included before highway.h.
#include <hwy/highway.h>

#include "server/transform/kernels/values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headrace::server::transform {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void WritePlanes(const PixelFormat& format, const std::uint8_t* in, std::ptrdiff_t plane, std::size_t pixels,
                 std::byte* out, std::size_t out_plane, bool) {
  scalar::write_planes(format, in, plane, pixels, out, out_plane);
}

void CopyStreamed(const std::uint8_t* in, std::size_t size, std::uint8_t* out) {
  std::memcpy(out, in, size);
}

#else

void CopyStreamed(const std::uint8_t* HWY_RESTRICT in, std::size_t size, std::uint8_t* HWY_RESTRICT out) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t n = hn::Lanes(d);
  // Whole cache lines: a line that is stored both ways is written twice.
  constexpr std::size_t kLine = 64;
  const std::size_t head = std::min(size, (kLine - reinterpret_cast<std::uintptr_t>(out) % kLine) % kLine);
  std::memcpy(out, in, head);
  std::size_t x = head;
  const std::size_t end = head + (size - head) / kLine * kLine;
  for (; x < end; x += n) hn::Stream(hn::LoadU(d, in + x), d, out + x);
  std::memcpy(out + x, in + x, size - x);
}

template <class As, bool kDivide>
void WriteFloatPlanes(const PixelFormat& format, const std::uint8_t* HWY_RESTRICT in, std::ptrdiff_t plane,
                      std::size_t pixels, std::byte* HWY_RESTRICT out, std::size_t out_plane, bool streamed) {
  using Element = typename As::Element;
  const DFloat d;
  const hn::Rebind<Element, DFloat> de;
  const std::size_t n = hn::Lanes(d);
  const bool normalized = format.normalized;
  const auto channel = [&](std::size_t c) {
    return Channel{hn::Set(d, format.mean[c]), hn::Set(d, format.std[c]), hn::Set(d, format.reciprocal[c])};
  };
  auto* const to = reinterpret_cast<Element*>(out);
  if (pixels < n) return scalar::write_planes(format, in, plane, pixels, out, out_plane);
  // The last vector overlaps the one before.
  const auto each = [&](auto write) {
    std::size_t x = 0;
    for (; x + n <= pixels; x += n) write(x);
    if (x < pixels) write(pixels - n);
  };
  if (format.layout == PixelLayout::kNchw) {
    const auto channels = static_cast<std::size_t>(format.channels);
    for (std::size_t c = 0; c < channels; ++c) {
      const Channel values = channel(c);
      const std::uint8_t* HWY_RESTRICT from = in + static_cast<std::ptrdiff_t>(c) * plane;
      Element* HWY_RESTRICT const target = to + c * out_plane;
      const auto value = [&](std::size_t x) {
        return As::of(value_of<kDivide>(from + x, values, normalized));
      };
      if constexpr (sizeof(Element) == sizeof(float)) {  // half types fill only parts of a vector
        if (streamed && reinterpret_cast<std::uintptr_t>(target) % (n * sizeof(Element)) == 0) {
          std::size_t x = 0;
          for (; x + n <= pixels; x += n) hn::Stream(value(x), de, target + x);
          if (x < pixels) hn::StoreU(value(pixels - n), de, target + pixels - n);
          continue;
        }
      }
      each([&](std::size_t x) { hn::StoreU(value(x), de, target + x); });
    }
    return;
  }
  const Channel red = channel(0), green = channel(1), blue = channel(2);
  each([&](std::size_t x) {
    hn::StoreInterleaved3(As::of(value_of<kDivide>(in + x, red, normalized)),
                          As::of(value_of<kDivide>(in + plane + x, green, normalized)),
                          As::of(value_of<kDivide>(in + 2 * plane + x, blue, normalized)), de, to + 3 * x);
  });
}

void WriteBytePlanes(const PixelFormat& format, const std::uint8_t* HWY_RESTRICT in, std::ptrdiff_t plane,
                     std::size_t pixels, std::uint8_t* HWY_RESTRICT out, std::size_t out_plane,
                     bool streamed) {
  if (format.layout == PixelLayout::kNchw) {
    const auto channels = static_cast<std::size_t>(format.channels);
    // Each copy may begin and end within a cache line, which must then be read.
    if (pixels == out_plane && plane == static_cast<std::ptrdiff_t>(pixels))
      return copy_bytes(in, channels * pixels, out, streamed);
    for (std::size_t c = 0; c < channels; ++c)
      copy_bytes(in + static_cast<std::ptrdiff_t>(c) * plane, pixels, out + c * out_plane, streamed);
    return;
  }
  const D8 d;
  std::size_t x = 0;
  for (; x + 16 <= pixels; x += 16)
    hn::StoreInterleaved3(hn::LoadU(d, in + x), hn::LoadU(d, in + plane + x),
                          hn::LoadU(d, in + 2 * plane + x), d, out + 3 * x);
  for (; x < pixels; ++x)
    for (std::ptrdiff_t c = 0; c < 3; ++c)
      out[3 * x + static_cast<std::size_t>(c)] = in[c * plane + static_cast<std::ptrdiff_t>(x)];
}

template <class As>
void WritePlanesAs(const PixelFormat& format, const std::uint8_t* in, std::ptrdiff_t plane,
                   std::size_t pixels, std::byte* out, std::size_t out_plane, bool streamed) {
  if (format.method == PixelFormat::Method::kDivision)
    return WriteFloatPlanes<As, true>(format, in, plane, pixels, out, out_plane, streamed);
  WriteFloatPlanes<As, false>(format, in, plane, pixels, out, out_plane, streamed);
}

void WritePlanes(const PixelFormat& format, const std::uint8_t* in, std::ptrdiff_t plane, std::size_t pixels,
                 std::byte* out, std::size_t out_plane, bool streamed) {
  switch (format.dtype) {
    case DType::kFloat32:
      return WritePlanesAs<AsFloat>(format, in, plane, pixels, out, out_plane, streamed);
    case DType::kFloat16:
      return WritePlanesAs<AsHalf>(format, in, plane, pixels, out, out_plane, streamed);
    case DType::kBFloat16:
      return WritePlanesAs<AsBFloat>(format, in, plane, pixels, out, out_plane, streamed);
    default:
      return WriteBytePlanes(format, in, plane, pixels, reinterpret_cast<std::uint8_t*>(out), out_plane,
                             streamed);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace headrace::server::transform
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::server::transform {

HWY_EXPORT(WritePlanes);
HWY_EXPORT(CopyStreamed);

void copy_streamed(const std::uint8_t* in, std::size_t size, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(CopyStreamed)(in, size, out);
}

void flush_streamed() {
  hwy::FlushStream();
}

void write_planes(const PixelFormat& format, const std::uint8_t* in, std::ptrdiff_t plane, std::size_t pixels,
                  std::byte* out, std::size_t out_plane, bool streamed) {
  if (format.method == PixelFormat::Method::kTable && format.dtype != DType::kUInt8)
    return scalar::write_planes(format, in, plane, pixels, out, out_plane);
  HWY_DYNAMIC_DISPATCH(WritePlanes)(format, in, plane, pixels, out, out_plane, streamed);
}

}  // namespace headrace::server::transform
#endif
