#include "server/transform/kernels/normal_quantile.h"

#include <array>
#include <cmath>

#include "server/transform/kernels/exact_math.h"

namespace headrace::server::transform {
namespace {

using Coefficients = std::array<double, 8>;  // highest power first

double polynomial(const Coefficients& coefficients, double x) {
  double sum = 0;
  for (const double coefficient : coefficients) sum = sum * x + coefficient;
  return sum;
}

constexpr Coefficients kCentralUpper{
    2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
    1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e+0};
constexpr Coefficients kCentralLower{
    5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
    5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0};
constexpr Coefficients kTailUpper{7.74545014278341407640e-4, 2.27238449892691845833e-2,
                                  2.41780725177450611770e-1, 1.27045825245236838258e+0,
                                  3.64784832476320460504e+0, 5.76949722146069140550e+0,
                                  4.63033784615654529590e+0, 1.42343711074968357734e+0};
constexpr Coefficients kTailLower{1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                  1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                  6.89767334985100004550e-1, 1.67638483018380384940e+0,
                                  2.05319162663775882187e+0, 1.0};

}  // namespace

double normal_of(std::uint32_t bits) {
  const double p = (static_cast<double>(bits) + 0.5) * 0x1p-32;
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return polynomial(kCentralUpper, r) / polynomial(kCentralLower, r) * q;
  }
  // At most 4.8; the algorithm's third case begins at 5.
  const double r = std::sqrt(-exact_log(q < 0 ? p : 1.0 - p)) - 1.6;
  const double x = polynomial(kTailUpper, r) / polynomial(kTailLower, r);
  return q < 0 ? -x : x;
}

}  // namespace headrace::server::transform
