#include "server/transform/kernels/exact_math.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "server/transform/kernels/extended.h"

namespace headrace::server::transform {
namespace {

// ln 2 in two parts; the first ends with zeros, so that small multiples of it are exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// ARM's long double has 113 bits, which would round differently.
using Real = std::conditional_t<std::numeric_limits<long double>::digits == 64, long double, Extended>;

}  // namespace

double exact_log(double x) {
  int exponent = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    exponent = -54;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  exponent += static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000F'FFFF'FFFF'FFFFULL) | 0x3FF0'0000'0000'0000ULL);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 artanh(s), |s| <= 0.172: 12 terms leave less than 2^-60.
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  double sum = 0.0;
  for (int k = 12; k >= 1; --k) sum = (sum + 1.0 / (2.0 * k + 1.0)) * square;
  return exponent * kLn2High + (2.0 * s + (2.0 * s * sum + exponent * kLn2Low));
}

double exact_exp(double x) {
  const double n = std::floor(x * 1.4426950408889634 + 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= 0.35
  double sum = 1.0;
  for (int k = 14; k >= 1; --k) sum = 1.0 + sum * (r / k);
  const auto exponent = static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023);
  return sum * std::bit_cast<double>(exponent << 52);
}

double exact_sin(double x) {
  return extended_sine<Real>(0, x);
}

double exact_cos(double x) {
  return extended_sine<Real>(1, x);
}

double round_to_15_digits(double x) {
  return extended_fifteen_digits<Real>(x);
}

double round_half_even(double x) {
  const double below = std::floor(x);
  const double rest = x - below;
  if (rest != 0.5) return rest < 0.5 ? below : below + 1.0;
  return std::fmod(below, 2.0) == 0.0 ? below : below + 1.0;
}

}  // namespace headrace::server::transform
