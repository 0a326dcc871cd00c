#include <cstring>

#include "server/decode/decoder.h"
#include "server/transform/kernels/pixel_ops.h"

// As in row_kernels.cpp.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/transform/kernels/pixel_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must be included before highway.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headrace::server::transform {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

std::uint64_t ApplyOps(std::span<const PointOp> ops, const std::uint8_t* in, std::size_t width,
                       std::uint8_t* out, bool sum) {
  return scalar::apply_ops(ops, in, width, out, sum);
}
void WeightedSum(const float* const* rows, const float* weights, std::size_t count, std::size_t size,
                 float* out) {
  scalar::weighted_sum(rows, weights, count, size, out);
}

#else

namespace hn = hwy::HWY_NAMESPACE;

using D8 = hn::FixedTag<std::uint8_t, 16>;
using D = hn::CappedTag<float, 16>;
using DInt = hn::Rebind<std::int32_t, D>;
using DBytes = hn::Rebind<std::uint8_t, D>;
using V = hn::Vec<D>;

constexpr std::size_t kBlock = 16;  // pixels

// Channels are floats that hold integers from 0 to 255. Floats represent integers below 2^24 exactly, so
// results made only of integers may be computed in any order.
struct Pixels {
  V r, g, b;
};

HWY_INLINE V Splat(float value) {
  return hn::Set(D(), value);
}

HWY_INLINE V Gray(const Pixels& p) {
  const auto sum = hn::MulAdd(p.r, Splat(19595),
                              hn::MulAdd(p.g, Splat(38470), hn::MulAdd(p.b, Splat(7471), Splat(32768))));
  return hn::Floor(hn::Mul(sum, Splat(1.0F / 65536)));
}

// No MulAdd: libImaging rounds the product.
HWY_INLINE V Blend(V a, V b, V factor) {
  const auto mixed = hn::Add(a, hn::Mul(factor, hn::Sub(b, a)));
  return hn::Floor(hn::Min(hn::Max(mixed, hn::Zero(D())), Splat(255)));
}

HWY_INLINE Pixels Blend(V a, const Pixels& p, V factor) {
  return {Blend(a, p.r, factor), Blend(a, p.g, factor), Blend(a, p.b, factor)};
}

// The integer part of 255 x, for 0 <= x <= 1. The product may have been rounded up to an integer: then 255 of
// x are less than it, which shows in 256 x, which is exact.
HWY_INLINE V TimesByte(V x) {
  const auto whole = hn::Floor(hn::Mul(x, Splat(255)));
  const auto beyond = hn::Sub(hn::Mul(x, Splat(256)), whole);
  return hn::Sub(whole, hn::IfThenElseZero(hn::Lt(beyond, x), Splat(1)));
}

// libImaging converts to HSV and back with a mixture of float and double; this gives the same bytes for each
// of the 2^24 colors, and on the way back for each of the 2^24 triples.
//   To HSV: the quotients are libImaging's own; one of the other two channels is the least, whose quotient is
//   1, so h is a single difference, rounded once.
//   Back: the rounded values have no ties in exact arithmetic, so each can be a rounded quotient of integers.
HWY_INLINE Pixels ShiftHue(const Pixels& p, V shift) {
  const V zero = hn::Zero(D()), one = Splat(1);
  const V most = hn::Max(p.r, hn::Max(p.g, p.b)), least = hn::Min(p.r, hn::Min(p.g, p.b));
  const V range = hn::Sub(most, least), divisor = hn::Max(range, one);
  const V s = TimesByte(hn::Div(range, hn::Max(most, one)));

  const auto red = hn::Eq(p.r, most);
  const auto green = hn::AndNot(red, hn::Eq(p.g, most));
  const V before = hn::IfThenElse(red, p.b, hn::IfThenElse(green, p.r, p.g));
  const V after = hn::IfThenElse(red, p.g, hn::IfThenElse(green, p.b, p.r));
  const V base = hn::IfThenElse(red, zero, hn::IfThenElse(green, Splat(2), Splat(4)));
  const auto rising = hn::Eq(after, least);  // base + before / range - 1, else base + 1 - after / range
  const V quotient = hn::Div(hn::Sub(most, hn::IfThenElse(rising, before, after)), divisor);
  const V sixths =
      hn::IfThenElse(rising, hn::Add(hn::Sub(base, one), quotient), hn::Sub(hn::Add(base, one), quotient));
  V turns = hn::Div(sixths, Splat(6));
  turns = hn::IfThenElse(hn::Lt(sixths, zero), hn::Add(turns, one), turns);
  turns = hn::IfThenElse(hn::Ge(turns, one), hn::Sub(turns, one), turns);
  V h = hn::Add(hn::IfThenElseZero(hn::Gt(range, zero), TimesByte(turns)), shift);
  h = hn::IfThenElse(hn::Ge(h, Splat(256)), hn::Sub(h, Splat(256)), h);

  const V six = hn::Mul(h, Splat(6));
  const V sector = hn::Floor(hn::Mul(hn::Add(six, Splat(0.5F)), Splat(1.0F / 255)));  // 0..6
  const V rest = hn::NegMulAdd(sector, Splat(255), six);
  const V low =
      hn::Floor(hn::Mul(hn::MulAdd(most, hn::Sub(Splat(255), s), Splat(127.5F)), Splat(1.0F / 255)));
  const V halves = hn::Mul(sector, Splat(0.5F));
  const V weight = hn::IfThenElse(hn::Eq(halves, hn::Floor(halves)), hn::Sub(Splat(255), rest), rest);
  const V scaled = hn::Mul(most, hn::NegMulAdd(s, weight, Splat(65025)));  // < 2^24
  V middle = hn::Floor(hn::MulAdd(scaled, Splat(1.0F / 65025), Splat(0.5F)));
  const V missing = hn::NegMulAdd(middle, Splat(65025), scaled);
  middle = hn::Add(middle, hn::IfThenElseZero(hn::Gt(missing, Splat(32512)), one));
  middle = hn::Sub(middle, hn::IfThenElseZero(hn::Lt(missing, Splat(-32512)), one));

  // Seen from red, sectors 0 and 5 have it at its maximum, 1 and 4 in the middle, 2 and 3 at its minimum.
  const auto channel = [&](V turned) {
    const V away = hn::Abs(hn::Sub(turned, Splat(2.5F)));
    return hn::IfThenElse(hn::Gt(away, Splat(2)), most, hn::IfThenElse(hn::Gt(away, one), middle, low));
  };
  const auto turned = [&](float by) {
    const V sum = hn::Add(sector, Splat(by));
    return hn::IfThenElse(hn::Ge(sum, Splat(6)), hn::Sub(sum, Splat(6)), sum);
  };
  return {channel(sector), channel(turned(4)), channel(turned(2))};
}

HWY_INLINE V Look(const std::array<float, 256>& table, V v) {
  return hn::GatherIndex(D(), table.data(), hn::ConvertTo(DInt(), v));
}

HWY_INLINE Pixels Apply(const PointOp& op, const Pixels& p) {
  const V factor = Splat(op.factor);
  switch (op.kind) {
    case PointOp::Kind::kBlendConstant:
      return Blend(Splat(op.constant), p, factor);
    case PointOp::Kind::kBlendGray:
      return Blend(Gray(p), p, factor);
    case PointOp::Kind::kTable:
      return {Look((*op.table)[0], p.r), Look((*op.table)[1], p.g), Look((*op.table)[2], p.b)};
    case PointOp::Kind::kHue:
      break;
  }
  return ShiftHue(p, Splat(op.shift));
}

HWY_INLINE V LoadChannel(const std::uint8_t* from) {
  return hn::ConvertTo(D(), hn::PromoteTo(DInt(), hn::LoadU(DBytes(), from)));
}

HWY_INLINE void StoreChannel(V v, std::uint8_t* to) {
  hn::StoreU(hn::DemoteTo(DBytes(), hn::ConvertTo(DInt(), v)), DBytes(), to);
}

std::uint64_t ApplyOps(std::span<const PointOp> ops, const std::uint8_t* in, std::size_t width,
                       std::uint8_t* out, bool sum) {
  constexpr std::size_t kFlush = 1 << 15;  // pixels whose grays a float sums without rounding
  const D8 d8;
  const D d;
  HWY_ALIGN std::uint8_t bytes[3][kBlock];
  std::uint64_t total = 0;
  V grays = hn::Zero(d);
  const auto flush = [&] {
    total += static_cast<std::uint64_t>(hn::GetLane(hn::SumOfLanes(d, grays)));
    grays = hn::Zero(d);
  };
  for (std::size_t x = 0; x < width; x += kBlock) {
    hn::Vec<D8> r, g, b;
    hn::LoadInterleaved3(d8, in + 3 * x, r, g, b);
    hn::Store(r, d8, bytes[0]);
    hn::Store(g, d8, bytes[1]);
    hn::Store(b, d8, bytes[2]);
    for (std::size_t part = 0; part < kBlock; part += hn::Lanes(d)) {
      Pixels p{LoadChannel(bytes[0] + part), LoadChannel(bytes[1] + part), LoadChannel(bytes[2] + part)};
      for (const PointOp& op : ops) p = Apply(op, p);
      StoreChannel(p.r, bytes[0] + part);
      StoreChannel(p.g, bytes[1] + part);
      StoreChannel(p.b, bytes[2] + part);
      if (!sum || x + part >= width) continue;
      grays = hn::Add(grays, hn::IfThenElseZero(hn::FirstN(d, width - x - part), Gray(p)));
    }
    hn::StoreInterleaved3(hn::Load(d8, bytes[0]), hn::Load(d8, bytes[1]), hn::Load(d8, bytes[2]), d8,
                          out + 3 * x);
    if (sum && (x & (kFlush - 1)) == kFlush - kBlock) flush();
  }
  if (sum) flush();
  return total;
}

void WeightedSum(const float* const* rows, const float* weights, std::size_t count, std::size_t size,
                 float* out) {
  const D d;
  const std::size_t n = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 4 * n <= size; i += 4 * n) {
    V a = hn::Zero(d), b = a, c = a, e = a;
    for (std::size_t k = 0; k < count; ++k) {
      const V weight = Splat(weights[k]);
      const float* from = rows[k] + i;
      a = hn::Add(a, hn::Mul(weight, hn::LoadU(d, from)));
      b = hn::Add(b, hn::Mul(weight, hn::LoadU(d, from + n)));
      c = hn::Add(c, hn::Mul(weight, hn::LoadU(d, from + 2 * n)));
      e = hn::Add(e, hn::Mul(weight, hn::LoadU(d, from + 3 * n)));
    }
    hn::StoreU(a, d, out + i);
    hn::StoreU(b, d, out + i + n);
    hn::StoreU(c, d, out + i + 2 * n);
    hn::StoreU(e, d, out + i + 3 * n);
  }
  for (; i < size; i += n) {
    V a = hn::Zero(d);
    for (std::size_t k = 0; k < count; ++k)
      a = hn::Add(a, hn::Mul(Splat(weights[k]), hn::LoadU(d, rows[k] + i)));
    hn::StoreU(a, d, out + i);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace headrace::server::transform
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::server::transform {

HWY_EXPORT(ApplyOps);
HWY_EXPORT(WeightedSum);

std::uint64_t apply_ops(std::span<const PointOp> ops, const std::uint8_t* in, std::size_t width,
                        std::uint8_t* out, bool sum) {
  return HWY_DYNAMIC_DISPATCH(ApplyOps)(ops, in, width, out, sum);
}

void weighted_sum(const float* const* rows, const float* weights, std::size_t count, std::size_t size,
                  float* out) {
  HWY_DYNAMIC_DISPATCH(WeightedSum)(rows, weights, count, size, out);
}

}  // namespace headrace::server::transform
#endif
