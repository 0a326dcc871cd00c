// Restart-tiled JPEGs: those that we write have the pixels of the file, and a forged index does no harm.
// Input: a region (4 bytes), then the file.
#include "server/decode/jpeg_tiles.h"
#include "server/decode/tile_jpeg.h"
#include "tests/fuzz/decoded.h"
#include "tests/pixels/make_jpeg.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  using namespace headrace::server::decode;
  static const auto kBefore = pixels::make_jpeg({.width = 200, .height = 150});
  fuzz::Input input(data, size);
  const auto corner = input.take_bytes(4);
  const fuzz::Bytes file = input.rest();
  const auto image = fuzz::size_of(file);
  if (!image) return 0;
  fuzz::Input numbers(corner.data(), corner.size());
  const Rect region = fuzz::take_region(numbers, *image);
  const auto pixels = fuzz::check_decoder(file, *image, region, {kBefore, !TileMap::claimed_by(file)});
  const std::uint64_t room = JpegTiler::room(file, fuzz::kMostPixels);
  require(room == 0 || room >= file.size(), "the room for a tiled file is at least the file's size");
  JpegTiler tiler;
  std::vector<std::uint8_t> tiled;
  if (tiler.tile(file, tiled) != Tiling::kTiled) return 0;
  require(pixels.has_value(), "only a file that can be decoded is tiled");
  require(TileMap::claimed_by(tiled) && fuzz::size_of(tiled) == image,
          "a tiled file has the size of the file");
  require(fuzz::check_decoder(tiled, *image, region, {kBefore}) == pixels,
          "a tiled file has the pixels of the file");
  return 0;
}
