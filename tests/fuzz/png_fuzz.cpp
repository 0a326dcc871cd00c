// PNG files. Input: flags (1: correct the checksums of all chunks; 2: return palette indices), a region
// (4 bytes), then the file.
#include <zlib.h>

#include "tests/fuzz/decoded.h"

namespace {

using headrace::fuzz::Pixels;

std::uint32_t number_at(const Pixels& file, std::size_t at) {
  return std::uint32_t{file[at]} << 24 | std::uint32_t{file[at + 1]} << 16 |
         std::uint32_t{file[at + 2]} << 8 | file[at + 3];
}

/// A changed chunk would otherwise be refused for its checksum alone.
void correct_checksums(Pixels& file) {
  constexpr std::size_t kSignature = 8, kHead = 8, kChecksum = 4;
  for (std::size_t at = kSignature; file.size() - std::min(at, file.size()) >= kHead + kChecksum;) {
    const std::size_t length = number_at(file, at);
    if (length > file.size() - at - kHead - kChecksum) return;
    const auto sum = ::crc32(0, file.data() + at + 4, static_cast<uInt>(4 + length));
    for (std::size_t i = 0; i < kChecksum; ++i)
      file[at + kHead + length + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
    at += kHead + length + kChecksum;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  fuzz::Input input(data, size);
  const auto flags = input.take<std::uint8_t>();
  const auto corner = input.take_bytes(4);
  const auto rest = input.rest();
  Pixels file(rest.begin(), rest.end());
  if (flags & 1) correct_checksums(file);
  server::decode::ImageData image(file);
  image.indices = (flags & 2) != 0;
  if (const auto extent = fuzz::size_of(image)) {
    fuzz::Input numbers(corner.data(), corner.size());
    (void)fuzz::check_decoder(image, *extent, fuzz::take_region(numbers, *extent));
  }
  return 0;
}
