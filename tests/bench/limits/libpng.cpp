#include <png.h>

#include "tests/bench/limits/loop.h"

namespace headrace::bench {

PngDecode libpng_decode() {
  return [](const std::vector<unsigned char>& file, std::vector<unsigned char>& rgb) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_memory(&image, file.data(), file.size()) == 0) return false;
    image.format = PNG_FORMAT_RGB;
    rgb.resize(PNG_IMAGE_SIZE(image));
    return png_image_finish_read(&image, nullptr, rgb.data(), 0, nullptr) != 0;
  };
}

}  // namespace headrace::bench
