#include <fmt/format.h>
#include <spng.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>

#include "tests/bench/bare_decode.h"
#include "tests/bench/limits/loop.h"

namespace headrace::bench {
namespace {

using Bytes = std::vector<unsigned char>;

struct FreeSpng {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

/// Whole images as RGB.
bool spng_decode(const Bytes& file, Bytes& rgb) {
  const std::unique_ptr<spng_ctx, FreeSpng> context(spng_ctx_new(SPNG_CTX_IGNORE_ADLER32));
  std::size_t size = 0;
  if (spng_set_png_buffer(context.get(), file.data(), file.size()) != 0) return false;
  if (spng_decoded_image_size(context.get(), SPNG_FMT_RGB8, &size) != 0) return false;
  rgb.resize(size);
  return spng_decode_image(context.get(), rgb.data(), size, SPNG_FMT_RGB8, 0) == 0;
}

std::vector<Bytes> read_pngs(const std::string& folder) {
  std::vector<Bytes> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".png") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>{});
  }
  if (files.empty()) throw std::runtime_error(folder + " holds no PNG files: name the folder of the pairs");
  return files;
}

Loop png_loop(const std::string& name, const std::shared_ptr<std::vector<Bytes>>& files,
              const PngDecode& decode) {
  return {name, [files, decode, next = std::size_t{0}, rgb = Bytes{}](std::size_t samples) mutable {
            for (std::size_t i = 0; i < 2 * samples; ++i) {
              const std::size_t index = next++ % files->size();
              if (!decode((*files)[index], rgb))
                throw std::runtime_error(fmt::format("PNG file {} does not decode", index));
            }
          }};
}

}  // namespace

std::vector<Loop> jpeg_loops(const std::string& folder) {
  auto crops = std::make_shared<std::vector<Item>>(load_items(folder, training_plan(), 0));
  auto whole = std::make_shared<std::vector<Item>>(*crops);
  for (Item& item : *whole) {
    const auto size = BareDecoder::size(item);
    item.left = item.top = 0;
    item.width = size.first;
    item.height = size.second;
  }
  const auto loop = [](const std::string& name, const std::shared_ptr<std::vector<Item>>& items) {
    auto decoder = std::make_shared<BareDecoder>();
    return Loop{name, [items, decoder, next = std::size_t{0}](std::size_t samples) mutable {
                  for (std::size_t i = 0; i < samples; ++i) decoder->decode((*items)[next++ % items->size()]);
                }};
  };
  return {loop("w3 JPEG, whole", whole), loop("w3 JPEG, rectangles", crops)};
}

std::vector<Loop> png_loops(const std::string& folder) {
  auto files = std::make_shared<std::vector<Bytes>>(read_pngs(folder));
  std::vector<Loop> loops{png_loop("w4 PNG pair, libspng", files, spng_decode)};
  if (const PngDecode libpng = libpng_decode())
    loops.push_back(png_loop("w4 PNG pair, libpng", files, libpng));
  return loops;
}

}  // namespace headrace::bench
