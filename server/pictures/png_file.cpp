#include "server/pictures/png_file.h"

#include <fmt/format.h>
#include <spng.h>

#include <cstdlib>
#include <memory>

namespace headrace::server::pictures {

Result<std::vector<std::uint8_t>> encode_png(std::span<const std::uint8_t> pixels,
                                             const decode::PixelShape& shape) {
  const std::unique_ptr<spng_ctx, decltype(&spng_ctx_free)> context(spng_ctx_new(SPNG_CTX_ENCODER),
                                                                    &spng_ctx_free);
  const auto refuse = [](int code) {
    return fail(ErrorCode::kEnvironment, fmt::format("cannot encode a PNG: {}", spng_strerror(code)));
  };
  if (!context) return refuse(SPNG_EMEM);
  constexpr int kLevel = 3;
  int code = spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1);
  if (code == 0) code = spng_set_option(context.get(), SPNG_IMG_COMPRESSION_LEVEL, kLevel);
  spng_ihdr head{};
  head.width = static_cast<std::uint32_t>(shape.width);
  head.height = static_cast<std::uint32_t>(shape.height);
  head.color_type = shape.channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR;
  head.bit_depth = 8;
  if (code == 0) code = spng_set_ihdr(context.get(), &head);
  if (code == 0)
    code = spng_encode_image(context.get(), pixels.data(), pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
  if (code != 0) return refuse(code);
  std::size_t size = 0;
  const std::unique_ptr<std::uint8_t, decltype(&std::free)> file(
      static_cast<std::uint8_t*>(spng_get_png_buffer(context.get(), &size, &code)), &std::free);
  if (!file) return refuse(code);
  return std::vector<std::uint8_t>(file.get(), file.get() + size);
}

}  // namespace headrace::server::pictures
