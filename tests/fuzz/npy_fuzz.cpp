// numpy arrays: headers, .npy files, .npz files, and the datasets of them.
// Input: 0: a .npy file, 1: a .npz file, 2: both (two pieces), then the bytes.
#include "server/source/formats/npy.h"
#include "tests/fuzz/sources.h"
#include "tests/temp_folder.h"

namespace headrace::server::source {
namespace {

void read_header(fuzz::Bytes bytes) {
  const auto header = parse_npy_header(bytes, "x.npy");
  if (!header) return require(!header.error().message.empty(), "a refusal says why");
  std::uint64_t values = size_of(header->dtype);
  for (const std::uint64_t dim : header->shape)
    require(!__builtin_mul_overflow(values, dim, &values), "an array's size is a number");
  require(header->data_bytes == values && header->data_offset <= bytes.size(),
          "a header gives the array's size");
}

void read_npz(const std::filesystem::path& path) {
  const auto headers = open_npz(path, {}, NpzLoad::kHeaders);
  const auto arrays = open_npz(path, {});
  if (!arrays) return require(!arrays.error().message.empty(), "a refusal says why");
  require(headers.has_value() && headers->size() == arrays->size(), "headers are read where arrays are");
  for (std::size_t i = 0; i < arrays->size(); ++i) {
    const NpyArray& array = (*arrays)[i];
    require(array.name == (*headers)[i].name && array.header.shape == (*headers)[i].header.shape,
            "a header is that of its array");
    require(array.values.view.size() == array.header.data_bytes, "an array has the size of its header");
    fuzz::touch(array.values.view);
  }
}

}  // namespace
}  // namespace headrace::server::source

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  using namespace headrace::server::source;
  static const TempFolder folder;
  fuzz::Input input(data, size);
  const int kind = input.take<std::uint8_t>() % 3;
  NpyOptions options;
  if (kind == 1) {
    options.npz = folder.put("x.npz", fuzz::text_of(input.rest()));
    read_npz(options.npz);
  } else {
    const auto first = kind == 0 ? input.rest() : input.take_piece();
    read_header(first);
    options.files["image"] = folder.put("image.npy", fuzz::text_of(first));
    if (kind == 2) options.files["label"] = folder.put("label.npy", fuzz::text_of(input.rest()));
  }
  fuzz::read_source(fuzz::open_as(options));
  return 0;
}
