// What libjpeg makes of a JPEG, with its own Huffman decoder or ours.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "server/decode/decoder.h"
#include "server/decode/jpeg_entropy.h"

namespace headrace::pixels {

/// Rows of a region as libjpeg gives them, with its own entropy decoder or ours.
class JpegReading {
 public:
  JpegReading(std::span<const std::uint8_t> file, server::decode::Rect region,
              server::decode::JpegEntropy* entropy)
      : region_(region) {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = [](j_common_ptr common) {
      std::longjmp(static_cast<JpegReading*>(common->client_data)->escape_, 1);
    };
    errors_.emit_message = [](j_common_ptr common, int level) {
      if (level >= 0) return;
      auto& self = *static_cast<JpegReading*>(common->client_data);
      char text[JMSG_LENGTH_MAX];
      common->err->format_message(common, text);
      if (common->err->num_warnings++ == 0) self.warning = text;
    };
    jpeg_create_decompress(&info_);
    if (setjmp(escape_) == 0)
      run(file, entropy);
    else
      code = errors_.msg_code;
    warnings = errors_.num_warnings;
  }
  ~JpegReading() { jpeg_destroy_decompress(&info_); }
  JpegReading(const JpegReading&) = delete;
  JpegReading& operator=(const JpegReading&) = delete;

  bool ours = false;
  int code = 0;            ///< of the final error
  int color_channels = 0;  ///< of libjpeg's output
  long warnings = 0;
  std::string warning;  ///< the first one
  std::vector<std::uint8_t> pixels;

 private:
  void run(std::span<const std::uint8_t> file, server::decode::JpegEntropy* entropy) {
    jpeg_mem_src(&info_, file.data(), file.size());
    jpeg_read_header(&info_, TRUE);
    jpeg_start_decompress(&info_);
    if (entropy != nullptr) {
      const auto* const before = info_.entropy;
      entropy->take_over(info_, {info_.src->next_input_byte, info_.src->bytes_in_buffer});
      ours = info_.entropy != before;
    }
    auto x = static_cast<JDIMENSION>(region_.left), width = static_cast<JDIMENSION>(region_.width);
    if (width < info_.output_width) jpeg_crop_scanline(&info_, &x, &width);
    if (region_.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(region_.top));
    color_channels = info_.output_components;
    const std::size_t row_bytes =
        std::size_t{info_.output_width} * static_cast<std::size_t>(info_.output_components);
    pixels.resize(row_bytes * static_cast<std::size_t>(region_.height));
    for (std::size_t y = 0; y < static_cast<std::size_t>(region_.height);) {
      JSAMPROW row = pixels.data() + y * row_bytes;
      y += jpeg_read_scanlines(&info_, &row, 1);
    }
  }

  const server::decode::Rect region_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  std::jmp_buf escape_{};
};

}  // namespace headrace::pixels
