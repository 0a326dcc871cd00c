// JPEG files of every kind that tests need, written by libjpeg itself: samplings and scans that PIL cannot
// write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace::pixels {

struct JpegKind {
  int width = 64, height = 48;
  int components = 3;                ///< 1 gray, 3 YCbCr, 4 CMYK
  int horizontal = 2, vertical = 2;  ///< luma sampling factors; chroma has 1 x 1
  bool progressive = false;
  int scans = 0;  ///< for a progressive file: only the first scans, as in a file that was truncated and
                  ///< terminated again
  bool arithmetic = false;
  bool ycck = false;         ///< with 4 components: Adobe's YCCK instead of CMYK
  bool rgb = false;          ///< with 3 components: stored as RGB
  int restart_interval = 0;  ///< MCUs
  int quality = 85;
  bool own_tables = false;  ///< Huffman tables made for this picture, as cameras and editors write them
  std::uint32_t seed = 1;   ///< of the picture: gradients, edges and noise
};

std::vector<std::uint8_t> make_jpeg(const JpegKind& kind);

/// The file without its segments of that marker: 0xDB, the quantization tables; 0xC4, the Huffman tables.
std::vector<std::uint8_t> without_segments(const std::vector<std::uint8_t>& file, std::uint8_t marker);

/// A progressive JPEG of one 8x8 gray block whose single AC coefficient is refined in `scans` scans.
std::vector<std::uint8_t> make_many_scans(int scans);

}  // namespace headrace::pixels
