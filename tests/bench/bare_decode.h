// The yardstick: a bare region-of-interest decode with libjpeg-turbo, without resize, output or checks.
#pragma once

#include <cstdio>
// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/bench/rectangles.h"

namespace headrace::bench {

class BareDecoder {
 public:
  BareDecoder() {
    info_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&info_);
  }
  ~BareDecoder() { jpeg_destroy_decompress(&info_); }
  BareDecoder(const BareDecoder&) = delete;
  BareDecoder& operator=(const BareDecoder&) = delete;

  /// Width and height of the whole image.
  static std::pair<std::int32_t, std::int32_t> size(const Item& item) {
    BareDecoder decoder;
    jpeg_mem_src(&decoder.info_, item.bytes.data(), item.bytes.size());
    jpeg_read_header(&decoder.info_, TRUE);
    return {static_cast<std::int32_t>(decoder.info_.image_width),
            static_cast<std::int32_t>(decoder.info_.image_height)};
  }

  void decode(const Item& item) {
    constexpr std::int32_t kMargin = 16;
    jpeg_mem_src(&info_, item.bytes.data(), item.bytes.size());
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info_);
    const auto width = static_cast<std::int32_t>(info_.output_width);
    const std::int32_t from = std::max(0, item.left - kMargin);
    const std::int32_t to = std::min(width, item.left + item.width + kMargin);
    auto x = static_cast<JDIMENSION>(from), columns = static_cast<JDIMENSION>(to - from);
    if (to - from < width) jpeg_crop_scanline(&info_, &x, &columns);
    if (item.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(item.top));
    const std::size_t stride = std::size_t{info_.output_width} * 3;
    rows_.resize(stride * kRows);
    JSAMPROW rows[kRows];
    for (std::size_t i = 0; i < kRows; ++i) rows[i] = rows_.data() + i * stride;
    for (std::int32_t left = item.height; left > 0;) {
      left -= static_cast<std::int32_t>(
          jpeg_read_scanlines(&info_, rows, static_cast<JDIMENSION>(std::min<std::int32_t>(left, kRows))));
    }
    jpeg_abort_decompress(&info_);
  }

 private:
  static constexpr std::size_t kRows = 16;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  std::vector<std::uint8_t> rows_;
};

}  // namespace headrace::bench
