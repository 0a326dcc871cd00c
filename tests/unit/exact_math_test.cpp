// The same bits on every machine: x87's arithmetic against its emulation in integers, and digests from x86-64
// that must also match on ARM (tests/neon).
#include "server/transform/kernels/exact_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "server/transform/kernels/extended.h"

namespace headrace::server::transform {
namespace {

constexpr bool kHasX87 = std::numeric_limits<long double>::digits == 64;

/// 64 bits of mantissa as two doubles, exactly.
template <class Real>
std::pair<std::uint64_t, std::uint64_t> bits_of(Real x) {
  const auto high = static_cast<double>(x);
  const auto low = static_cast<double>(x - Real(high));
  return {std::bit_cast<std::uint64_t>(high), std::bit_cast<std::uint64_t>(low)};
}

class Pairs {
 public:
  /// 53 bits, and 11 lower ones; often with runs of equal bits, which cause ties, carries and cancellation.
  std::pair<double, double> next() {
    std::uint64_t mantissa = random_();
    if (random_() % 2 == 0) mantissa &= ~std::uint64_t{0} << random_() % 64;
    if (random_() % 4 == 0) mantissa |= ~std::uint64_t{0} >> random_() % 64;
    const int exponent = static_cast<int>(random_() % 160) - 100;
    const double sign = random_() % 2 == 0 ? 1 : -1;
    return {sign * std::ldexp(static_cast<double>(mantissa >> 11), exponent + 11),
            sign * std::ldexp(static_cast<double>(mantissa & 0x7FF), exponent)};
  }

 private:
  std::mt19937_64 random_{7};
};

TEST(Extended, CalculatesAsX87Does) {
  if (!kHasX87) GTEST_SKIP() << "no x87 to compare with";
  Pairs pairs;
  for (int i = 0; i < 1'000'000; ++i) {
    const auto [a, a_low] = pairs.next();
    const auto [b, b_low] =
        i % 50 == 0 ? std::pair(i % 100 == 0 ? a : -a, i % 20 == 0 ? a_low : 0) : pairs.next();
    const long double x = static_cast<long double>(a) + a_low, y = static_cast<long double>(b) + b_low;
    const Extended u = Extended(a) + Extended(a_low), v = Extended(b) + Extended(b_low);
    ASSERT_EQ(bits_of(u), bits_of(x)) << i;
    ASSERT_EQ(bits_of(u + v), bits_of(x + y)) << i << ": " << a << " + " << b;
    ASSERT_EQ(bits_of(u - v), bits_of(x - y)) << i << ": " << a << " - " << b;
    ASSERT_EQ(bits_of(u * v), bits_of(x * y)) << i << ": " << a << " * " << b;
    if (y != 0) {
      ASSERT_EQ(bits_of(u / v), bits_of(x / y)) << i << ": " << a << " / " << b;
    }
  }
}

TEST(Extended, HasX87sZeroesAndSmallestNumbers) {
  if (!kHasX87) GTEST_SKIP() << "no x87 to compare with";
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  for (const double a :
       {0.0, -0.0, 1.0, -1.0, kTiny, -kTiny, 3 * kTiny, 0x1.8p-1022, 0x1.fffffffffffffp-1023})
    for (const double b : {0.0, -0.0, 1.0, -3.0, 0.5, -0.75, 1.25}) {
      const auto x = static_cast<long double>(a), y = static_cast<long double>(b);
      const Extended u(a), v(b);
      EXPECT_EQ(bits_of(u * v), bits_of(x * y)) << a << " * " << b;
      EXPECT_EQ(bits_of(u + v), bits_of(x + y)) << a << " + " << b;
      EXPECT_EQ(bits_of(u - v), bits_of(x - y)) << a << " - " << b;
    }
}

TEST(Extended, RoundsToWholeNumbersAsX87Does) {
  if (!kHasX87) GTEST_SKIP() << "no x87 to compare with";
  std::mt19937_64 random(3);
  for (int i = 0; i < 300'000; ++i) {
    const double whole = static_cast<double>(random() % 2'000'000'000'000'000) - 1e15;
    const double part = i % 3 == 0 ? 0.5 : static_cast<double>(random() % 2048) / 2048;
    const long double x = static_cast<long double>(whole) + part;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(nearbyint(Extended(whole) + Extended(part))),
              std::bit_cast<std::uint64_t>(static_cast<double>(std::nearbyint(x))))
        << whole << " + " << part;
  }
}

TEST(Extended, HasTheSinesOfThisMachine) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 200'000; ++i) {
    const double x = i < 100'000 ? (i - 50'000) * 0.002 : std::ldexp(static_cast<double>(random()), -58) - 32;
    for (const int quarters : {0, 1}) {
      const double sine = extended_sine<Extended>(quarters, x);
      ASSERT_EQ(std::bit_cast<std::uint64_t>(sine),
                std::bit_cast<std::uint64_t>(quarters == 0 ? exact_sin(x) : exact_cos(x)))
          << x;
      ASSERT_EQ(std::bit_cast<std::uint64_t>(extended_fifteen_digits<Extended>(sine)),
                std::bit_cast<std::uint64_t>(round_to_15_digits(sine)))
          << sine;
    }
  }
}

TEST(ExactMath, HasSinesAndCosinesToTheLastBitOrTwo) {
  for (int i = -7000; i <= 7000; ++i) {
    const double x = i * 0.001;
    EXPECT_NEAR(exact_sin(x), std::sin(x), 3e-16) << x;
    EXPECT_NEAR(exact_cos(x), std::cos(x), 3e-16) << x;
  }
}

TEST(ExactMath, IsTheSameOnEveryMachine) {
  // FNV-1a over the doubles' bits: a test's checksum.
  const auto digest = [](double (*f)(double), double from, double step) {
    std::uint64_t sum = 0xCBF29CE484222325ULL;
    for (int i = 0; i < 100'000; ++i)
      sum = (sum ^ std::bit_cast<std::uint64_t>(f(from + i * step))) * 0x100000001B3ULL;
    return sum;
  };
  EXPECT_EQ(digest(exact_sin, -100, 0.002), 0xDC73'F6ED'832E'7C1AULL);
  EXPECT_EQ(digest(exact_cos, -100, 0.002), 0x024D'CFEE'9F59'A5B2ULL);
  EXPECT_EQ(digest([](double x) { return round_to_15_digits(exact_sin(x)); }, -4, 0.00008),
            0x6923'56DA'5460'C241ULL);
  EXPECT_EQ(digest(exact_log, 1e-6, 0.001), 0xFF73'293F'E592'7075ULL);
  EXPECT_EQ(digest(exact_exp, -700, 0.014), 0xB79E'82A0'9165'A884ULL);
}

}  // namespace
}  // namespace headrace::server::transform
