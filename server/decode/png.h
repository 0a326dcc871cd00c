// PNG rows by libspng, converted as PIL's convert("RGB") does: transparency and gamma are ignored, palettes
// looked up, 16-bit color cut to its high byte, 16-bit gray (PIL's mode "I;16") clipped at 255.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "server/decode/decoder.h"

struct spng_ctx;

namespace headrace::server::decode {

/// See Decoder for the order of calls.
class PngReader {
 public:
  /// indices: see ImageData.
  Decoded<ImageSize> open(std::span<const std::uint8_t> encoded, std::uint64_t max_pixels,
                          bool indices = false);
  /// Bytes that begin() and next() allocate for the whole image or the kept region, without small buffers.
  [[nodiscard]] std::size_t memory(Rect region, bool keep) const;
  /// Frees it.
  void free_large();
  Decoded<void> begin(Rect region, bool keep);
  Decoded<Rows> next();

 private:
  struct Free {
    void operator()(spng_ctx* context) const;
  };

  void convert(const std::uint8_t* raw, std::uint8_t* rgb) const;

  std::span<const std::uint8_t> encoded_;
  std::unique_ptr<spng_ctx, Free> context_;
  std::uint32_t width_ = 0, height_ = 0;
  int color_type_ = 0, bit_depth_ = 0;
  bool interlaced_ = false, indices_ = false;
  std::array<std::array<std::uint8_t, 3>, 256> palette_{};
  std::size_t raw_row_ = 0;  // bytes of one row of libspng's output
  /// The whole image from libspng, if it cannot deliver single rows.
  std::unique_ptr<std::uint8_t[]> whole_;
  std::vector<std::uint8_t> raw_, rgb_;
  Rect region_;
  bool keep_ = false;
  std::int32_t done_ = 0;  // rows of the region
};

}  // namespace headrace::server::decode
