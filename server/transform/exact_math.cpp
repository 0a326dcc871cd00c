#include "server/transform/exact_math.h"

#include <bit>
#include <cmath>

namespace headrace::server::transform {
namespace {

// ln 2 in two parts, the first with zeros at its end so that small multiples of it are exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// Sines and cosines in x87's extended precision, so that the double is the nearest one but for 1 in 1000
// arguments: Pillow rounds them to 15 digits, where a last bit can show.
constexpr long double kHalfPi = 0xc.90fdaa22168c235p-3L;

// The sine of `quarters` quarter turns and of r, |r| <= 0.79, more.
long double sine_of(int quarters, long double r) {
  const long double square = r * r;
  long double sum = 1;
  if (quarters % 2 == 0) {
    for (int k = 22; k >= 2; k -= 2) sum = 1 - sum * square / (k * (k + 1));
    sum *= r;
  } else {
    for (int k = 23; k >= 1; k -= 2) sum = 1 - sum * square / (k * (k + 1));
  }
  return (quarters & 2) == 0 ? sum : -sum;
}

double sine_after(int quarters, double x) {
  const double n = std::floor(x * 0.6366197723675814 + 0.5);
  return static_cast<double>(sine_of(static_cast<int>(n) + quarters,
                                     static_cast<long double>(x) - static_cast<long double>(n) * kHalfPi));
}

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
  return sine_after(0, x);
}

double exact_cos(double x) {
  return sine_after(1, x);
}

double round_half_even(double x) {
  const double below = std::floor(x);
  const double rest = x - below;
  if (rest != 0.5) return rest < 0.5 ? below : below + 1.0;
  return std::fmod(below, 2.0) == 0.0 ? below : below + 1.0;
}

}  // namespace headrace::server::transform
