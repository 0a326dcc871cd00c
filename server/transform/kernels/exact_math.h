// Mathematics of the random draws, with the same bits on every machine. libm's exp and log differ between
// versions; sums, products, quotients and square roots of doubles do not.
#pragma once

#include <cstdint>

namespace headrace::server::transform {

/// Natural logarithm of a finite x > 0, within a few units in the last place.
double exact_log(double x);
/// e to the x for |x| <= 700, within a few units in the last place.
double exact_exp(double x);
/// Sine and cosine for |x| <= 100, within 2^-52, in x87's extended precision on every machine (extended.h).
double exact_sin(double x);
double exact_cos(double x);
/// Python's round(x, 15) for |x| <= 1.
double round_to_15_digits(double x);
/// Python's round(): ties to even. |x| < 2^52.
double round_half_even(double x);

}  // namespace headrace::server::transform
