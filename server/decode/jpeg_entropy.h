// The Huffman codes of a baseline JPEG (ITU-T T.81, F.2.2), read for libjpeg: most of what a crop costs is
// entropy decoding, of blocks that the crop does not need as well.
//
// The coefficients are libjpeg's, bit for bit. Whatever is not as the standard has it (bytes missing or left
// over, unknown codes, blocks of more than 64 coefficients, restart markers out of turn) is not judged here:
// it is kOddScan, and libjpeg reads the file from its beginning with its own decoder, its messages included.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>

namespace headrace::server::decode {

/// libjpeg's error code for a scan that its own decoder has to read.
inline constexpr int kOddScan = 100'004;

/// Not thread safe: of one decompressor. Tables are kept from one image to the next.
class JpegEntropy {
 public:
  JpegEntropy();
  ~JpegEntropy();
  JpegEntropy(const JpegEntropy&) = delete;
  JpegEntropy& operator=(const JpegEntropy&) = delete;

  /// After jpeg_start_decompress() and before any row is read or skipped: takes the place of libjpeg's
  /// decoder for this image, whose scan begins at `scan`. Does nothing for what it cannot read (progressive
  /// or arithmetic coding, several scans, another libjpeg), nor where making tables would cost more than it
  /// saves. libjpeg's error_exit is called with kOddScan from its decoding calls.
  void take_over(jpeg_decompress_struct& info, std::span<const std::uint8_t> scan);

  /// Leaves the next image to libjpeg's own decoder.
  void stand_aside() { active_ = false; }
  /// The first byte of the scan that was not read yet; never behind a marker. Null: libjpeg reads this image.
  [[nodiscard]] const std::uint8_t* position() const;

  /// After jpeg_crop_scanline(): what that said. No pixel of other columns is asked for.
  void need(const jpeg_decompress_struct& info, JDIMENSION x, JDIMENSION width);

 private:
  struct Scan;
  std::unique_ptr<Scan> scan_;
  bool active_ = false;
};

}  // namespace headrace::server::decode
