// x87's extended precision in integer arithmetic, for machines whose long double has another format: it gives
// the same bits there.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace headrace::server::transform {

/// A number with a mantissa of 64 bits. Sums, products and quotients are rounded to nearest, ties to even, as
/// in IEEE 754. Only finite numbers, whose exponents neither overflow nor underflow: enough for a sine.
class Extended {
 public:
  /// Converts a finite double exactly.
  constexpr Extended(double x) {  // NOLINT(google-explicit-constructor): as long double
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const auto exponent = static_cast<int>(bits >> 52 & 0x7FF);
    const std::uint64_t fraction = bits & 0x000F'FFFF'FFFF'FFFFULL;
    *this = rounded(bits >> 63 != 0, exponent == 0 ? fraction : fraction | std::uint64_t{1} << 52,
                    (exponent == 0 ? 1 : exponent) - 1075);
  }

  friend constexpr Extended operator*(Extended a, Extended b) {
    return rounded(a.negative_ != b.negative_, Wide{a.mantissa_} * b.mantissa_, a.exponent_ + b.exponent_);
  }
  /// REQUIRES: b is not 0.
  friend constexpr Extended operator/(Extended a, Extended b) {
    // At least 66 bits of the quotient, and a sticky bit for all that follow.
    const Wide whole = Wide{a.mantissa_} << 64;
    const Wide rest = whole % b.mantissa_ << 2;
    const Wide quotient = whole / b.mantissa_ << 2 | rest / b.mantissa_;
    return rounded(a.negative_ != b.negative_, quotient << 1 | Wide{rest % b.mantissa_ != 0},
                   a.exponent_ - b.exponent_ - 67);
  }
  friend constexpr Extended operator+(Extended a, Extended b) {
    if (a.mantissa_ == 0 || b.mantissa_ == 0) {
      if (a.mantissa_ != 0) return a;
      if (b.mantissa_ != 0) return b;
      a.negative_ = a.negative_ && b.negative_;
      return a;
    }
    if (a.exponent_ < b.exponent_) return b + a;
    // 63 bits below a's last: b's lower bits are combined into one sticky bit, which makes the sum inexact.
    const int down = a.exponent_ - b.exponent_;
    const Wide high = Wide{a.mantissa_} << 63;
    Wide low = Wide{b.mantissa_} << 63;
    low = down > 126 ? 1 : low >> down | Wide{(low & ((Wide{1} << down) - 1)) != 0};
    if (a.negative_ == b.negative_) return rounded(a.negative_, high + low, a.exponent_ - 63);
    if (high == low) return {false, 0, 0};
    return high > low ? rounded(a.negative_, high - low, a.exponent_ - 63)
                      : rounded(b.negative_, low - high, a.exponent_ - 63);
  }
  friend constexpr Extended operator-(Extended a, Extended b) { return a + -b; }
  constexpr Extended operator-() const { return {!negative_, mantissa_, exponent_}; }

  /// The nearest double, ties to even.
  explicit operator double() const {
    const int least = -1074 - exponent_;  // doubles end at 2^-1074
    return at_places(least > 11 ? least : 11);
  }
  /// The nearest integer, ties to even, with x's sign. |x| < 2^52.
  friend double nearbyint(Extended x) { return x.at_places(-x.exponent_); }

 private:
  __extension__ using Wide = unsigned __int128;

  constexpr Extended(bool negative, std::uint64_t mantissa, int exponent)
      : negative_(negative), mantissa_(mantissa), exponent_(exponent) {}

  /// Removes the last `places` bits of `wide` and rounds.
  static constexpr Wide cut(Wide wide, int places) {
    if (places == 0) return wide;
    if (places > 127) return 0;
    const Wide half = Wide{1} << (places - 1), rest = wide & ((Wide{1} << places) - 1), kept = wide >> places;
    return kept + Wide{rest > half || (rest == half && (kept & 1) != 0)};
  }
  static constexpr Extended rounded(bool negative, Wide wide, int exponent) {
    if (wide == 0) return {negative, 0, 0};
    const auto high = static_cast<std::uint64_t>(wide >> 64), low = static_cast<std::uint64_t>(wide);
    const int zeros = high != 0 ? std::countl_zero(high) : 64 + std::countl_zero(low);
    if (zeros >= 64) return {negative, low << (zeros - 64), exponent - (zeros - 64)};
    const Wide kept = cut(wide, 64 - zeros);
    if (kept >> 64 != 0) return {negative, std::uint64_t{1} << 63, exponent + 65 - zeros};
    return {negative, static_cast<std::uint64_t>(kept), exponent + 64 - zeros};
  }
  /// mantissa_ without its last `places` bits; at most 53 bits must remain.
  [[nodiscard]] double at_places(int places) const {
    const double size =
        mantissa_ == 0 ? 0.0
                       : std::ldexp(static_cast<double>(static_cast<std::uint64_t>(cut(mantissa_, places))),
                                    exponent_ + places);
    return negative_ ? -size : size;
  }

  bool negative_ = false;
  std::uint64_t mantissa_ = 0;  ///< its highest bit is set, or it is 0
  int exponent_ = 0;            ///< the value is mantissa_ * 2^exponent_
};

/// The sine of x plus `quarters` quarter turns, |x| <= 100. Real: long double if it has x87's format, else
/// Extended. The result is the nearest double except for 1 in 1000 arguments: Pillow rounds it to 15 digits,
/// so a last bit could show.
template <class Real>
double extended_sine(int quarters, double x) {
  const Real half_pi = Real(0xC90F'DAA2p-31) + Real(0x2168'C235p-63);  // to 64 bits
  const double turns = std::floor(x * 0.6366197723675814 + 0.5);
  const Real r = Real(x) - Real(turns) * half_pi;  // |r| <= 0.79
  const int quarter = static_cast<int>(turns) + quarters;
  const Real square = r * r;
  Real sum = 1;
  if (quarter % 2 == 0) {
    for (int k = 22; k >= 2; k -= 2) sum = Real(1) - sum * square / Real(k * (k + 1));
    sum = sum * r;
  } else {
    for (int k = 23; k >= 1; k -= 2) sum = Real(1) - sum * square / Real(k * (k + 1));
  }
  return static_cast<double>((quarter & 2) == 0 ? sum : -sum);
}

/// Python's round(x, 15), |x| <= 1. The product has more digits than a double.
template <class Real>
double extended_fifteen_digits(double x) {
  using std::nearbyint;
  return static_cast<double>(nearbyint(Real(x) * Real(1e15))) / 1e15;
}

}  // namespace headrace::server::transform
