// Reads the Huffman codes of a baseline JPEG (ITU-T T.81, F.2.2) for libjpeg: most of a crop's cost is
// entropy decoding, including blocks that the crop does not need.
//
// The coefficients equal libjpeg's, bit for bit. Deviations from the standard (missing or extra bytes,
// unknown codes, blocks of more than 64 coefficients, restart markers out of order) are not judged here: they
// are kOddScan, and libjpeg reads the file again with its own decoder, including its messages.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>

namespace headrace::server::decode {

/// The error code for a scan that libjpeg's own decoder must read.
inline constexpr int kOddScan = 100'004;

/// Not thread safe: belongs to one decompressor. Tables are kept from one image to the next.
class JpegEntropy {
 public:
  JpegEntropy();
  ~JpegEntropy();
  JpegEntropy(const JpegEntropy&) = delete;
  JpegEntropy& operator=(const JpegEntropy&) = delete;

  /// Call it after jpeg_start_decompress() and before any row is read or skipped. Replaces libjpeg's decoder
  /// for this image, whose scan begins at `scan`. Has no effect on images that it cannot read (progressive or
  /// arithmetic coding, several scans, another libjpeg) or whose tables would cost more than they save.
  /// libjpeg's decoding calls may then call error_exit with kOddScan.
  void take_over(jpeg_decompress_struct& info, std::span<const std::uint8_t> scan);

  /// Uses libjpeg's own decoder for the next image.
  void disable() { active_ = false; }
  /// The first unread byte of the scan, never after a marker. Null: libjpeg reads this image.
  [[nodiscard]] const std::uint8_t* position() const;

  /// Call it after jpeg_crop_scanline(), with its result. Pixels of other columns are not needed.
  void need(const jpeg_decompress_struct& info, JDIMENSION x, JDIMENSION width);

 private:
  struct Scan;
  std::unique_ptr<Scan> scan_;
  bool active_ = false;
};

}  // namespace headrace::server::decode
