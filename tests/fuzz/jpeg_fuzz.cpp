// Our Huffman decoder against libjpeg's own, and the JPEG decoder over both.
// Input: a region (4 bytes), then the file.
#include "server/decode/jpeg_entropy.h"
#include "server/decode/jpeg_tiles.h"
#include "tests/fuzz/decoded.h"
#include "tests/pixels/jpeg_reading.h"
#include "tests/pixels/make_jpeg.h"

namespace headrace::server::decode {
namespace {

/// Without the tables of an earlier file, small ones are left to libjpeg.
const auto kBefore = pixels::make_jpeg({.width = 200, .height = 150});

void warm(JpegEntropy& entropy) {
  const pixels::JpegReading reading(kBefore, {0, 0, 200, 1}, &entropy);
  require(reading.ours, "an ordinary file is read by our decoder");
}

void compare_with_libjpeg(fuzz::Bytes file, const Rect& region, const fuzz::Pixels* decoded, bool whole) {
  const pixels::JpegReading theirs(file, region, nullptr);
  JpegEntropy entropy;
  warm(entropy);
  const pixels::JpegReading mine(file, region, &entropy);
  if (mine.code != kOddScan) {
    require(mine.code == theirs.code, "an error is libjpeg's error");
    require(mine.warnings == theirs.warnings && mine.warning == theirs.warning, "a warning is libjpeg's");
    require(mine.pixels == theirs.pixels, "pixels are libjpeg's");
  }
  // Colors of other files are converted by us.
  if (decoded != nullptr && whole && theirs.code == 0 && theirs.color_channels == 3)
    require(*decoded == theirs.pixels, "a decoded file has libjpeg's pixels");
}

}  // namespace
}  // namespace headrace::server::decode

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  using namespace headrace::server::decode;
  fuzz::Input input(data, size);
  const auto corner = input.take_bytes(4);
  const fuzz::Bytes file = input.rest();
  if (file.size() < 2 || file[0] != 0xFF || file[1] != 0xD8 || TileMap::claimed_by(file)) return 0;
  const auto image = fuzz::size_of(file);
  if (!image) return 0;
  fuzz::Input numbers(corner.data(), corner.size());
  const Rect region = fuzz::take_region(numbers, *image);
  const auto pixels = fuzz::check_decoder(file, *image, region, {.before = kBefore});
  compare_with_libjpeg(file, region, nullptr, false);
  compare_with_libjpeg(file, {0, 0, image->width, image->height}, pixels ? &*pixels : nullptr, true);
  return 0;
}
