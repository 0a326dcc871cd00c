// XXH3 over the bytes that a loop receives, the same as the C++ trainer's: for comparing runs and consumers.
#define XXH_INLINE_ALL
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <xxhash.h>

#include <cstdio>

#include "bindings/src/bindings.h"

namespace headrace::python {
namespace {

struct Digest {
  XXH3_state_t xxh;
  Digest() { XXH3_64bits_reset(&xxh); }
};

void update(Digest& digest,
            const nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& bytes) {
  const nb::gil_scoped_release no_gil;
  XXH3_64bits_update(&digest.xxh, bytes.data(), bytes.size());
}

std::string hexdigest(const Digest& digest) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits_digest(&digest.xxh)));
  return text;
}

}  // namespace

void bind_digest(nb::module_& module) {
  nb::class_<Digest>(module, "Xxh3")
      .def(nb::init<>())
      .def("update", &update, nb::arg("data"))
      .def("hexdigest", &hexdigest);
}

}  // namespace headrace::python
