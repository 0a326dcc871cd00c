#include "tests/pixels/make_jpeg.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>

namespace headrace::pixels {
namespace {

std::uint32_t scramble(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352DU;
  x ^= x >> 15;
  x *= 0x846CA68BU;
  return x ^ (x >> 16);
}

std::uint8_t picture(std::uint32_t x, std::uint32_t y, std::uint32_t c, std::uint32_t seed) {
  const std::uint32_t noise = scramble(x * 7919 + y * 104729 + c * 31 + seed) & 31;
  const std::uint32_t edges = ((x / 5 + y / 3 + c) % 3) * 60;
  return static_cast<std::uint8_t>((x * (c + 1) + y * 2 + edges + noise + seed) & 0xFF);
}

/// The end of the marker segment at `at`.
std::size_t end_of_segment(const std::vector<std::uint8_t>& file, std::size_t at) {
  return at + 2 + static_cast<std::size_t>(file[at + 2] << 8 | file[at + 3]);
}

}  // namespace

std::vector<std::uint8_t> make_jpeg(const JpegKind& kind) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(kind.width);
  info.image_height = static_cast<JDIMENSION>(kind.height);
  info.input_components = kind.components;
  info.in_color_space = kind.components == 1 ? JCS_GRAYSCALE : kind.components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (kind.ycck) jpeg_set_colorspace(&info, JCS_YCCK);
  if (kind.rgb) jpeg_set_colorspace(&info, JCS_RGB);
  jpeg_set_quality(&info, kind.quality, TRUE);
  if (!kind.rgb && (kind.components != 4 || kind.ycck)) {
    info.comp_info[0].h_samp_factor = kind.horizontal;
    info.comp_info[0].v_samp_factor = kind.vertical;
    if (kind.ycck) {
      info.comp_info[3].h_samp_factor = kind.horizontal;
      info.comp_info[3].v_samp_factor = kind.vertical;
    }
  }
  info.optimize_coding = kind.own_tables ? TRUE : FALSE;
  info.arith_code = kind.arithmetic ? TRUE : FALSE;
  info.restart_interval = static_cast<unsigned>(kind.restart_interval);
  if (kind.progressive) jpeg_simple_progression(&info);
  if (kind.scans > 0) info.num_scans = std::min(info.num_scans, kind.scans);
  jpeg_start_compress(&info, TRUE);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(kind.width) *
                                static_cast<std::size_t>(kind.components));
  while (info.next_scanline < info.image_height) {
    std::size_t at = 0;
    for (std::uint32_t x = 0; x < info.image_width; ++x) {
      for (std::uint32_t c = 0; c < static_cast<std::uint32_t>(kind.components); ++c) {
        row[at++] = picture(x, info.next_scanline, c, kind.seed);
      }
    }
    JSAMPROW rows[1] = {row.data()};
    jpeg_write_scanlines(&info, rows, 1);
  }
  jpeg_finish_compress(&info);
  std::vector<std::uint8_t> result(bytes, bytes + size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return result;
}

std::vector<std::uint8_t> without_segments(const std::vector<std::uint8_t>& file, std::uint8_t marker) {
  std::vector<std::uint8_t> result(file.begin(), file.begin() + 2);
  std::size_t at = 2;
  while (file[at + 1] != 0xDA) {
    const std::size_t next = end_of_segment(file, at);
    if (file[at + 1] != marker)
      result.insert(result.end(), file.begin() + static_cast<std::ptrdiff_t>(at),
                    file.begin() + static_cast<std::ptrdiff_t>(next));
    at = next;
  }
  result.insert(result.end(), file.begin() + static_cast<std::ptrdiff_t>(at), file.end());
  return result;
}

std::vector<std::uint8_t> make_many_scans(int scans) {
  // Every byte of a progressive file's header, then the same tiny DC refinement scan again and again.
  auto file = make_jpeg({.width = 8, .height = 8, .components = 1, .progressive = true});
  std::size_t at = 2;
  while (!(file[at] == 0xFF && file[at + 1] == 0xDA)) {
    at = end_of_segment(file, at);
  }
  std::size_t end = end_of_segment(file, at);
  while (!(file[end] == 0xFF && file[end + 1] != 0x00)) ++end;
  std::vector<std::uint8_t> result(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(end));
  for (int i = 0; i < scans; ++i) {
    result.insert(result.end(), file.begin() + static_cast<std::ptrdiff_t>(at),
                  file.begin() + static_cast<std::ptrdiff_t>(end));
  }
  result.insert(result.end(), {0xFF, 0xD9});
  return result;
}

}  // namespace headrace::pixels
