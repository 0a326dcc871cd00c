#include "tests/bench/limits/loop.h"

namespace headrace::bench {

PngDecode libpng_decode() {
  return {};
}

}  // namespace headrace::bench
