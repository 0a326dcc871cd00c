// Turns a sample from its input into a record: decodes, tiles or resizes it as the options say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "server/decode/tile_jpeg.h"
#include "server/pack/input.h"
#include "server/store/meta.h"
#include "server/store/record.h"
#include "server/store/writer.h"
#include "server/transform/plan.h"

namespace headrace::server::pack {

/// The fields of the packed set. kInvalidArgument: a resize of a set whose fields match pixel by pixel
/// (masks, super-resolution pairs).
Result<std::vector<source::SourceField>> packed_fields(const std::vector<source::SourceField>& given,
                                                       const store::Options& options);

struct Converted {
  std::vector<std::uint8_t> record;
  store::RecordFacts facts;
  bool warned = false;  ///< the decoder repaired something
  decode::TilingCounts tiling;
};

/// One per thread.
class Converter {
 public:
  /// `fields`: of the samples; they must outlive this object.
  Converter(const std::vector<source::SourceField>& fields, const store::Options& options)
      : fields_(fields), options_(options), images_(fields.size()) {}

  /// An image that cannot be decoded is stored as its file; a sample that its source reports as bad is packed
  /// as a bad one.
  Converted convert(std::uint64_t index, const InputSample& given);

 private:
  struct Image {
    std::vector<std::uint8_t> bytes;
    decode::PixelShape shape;
  };

  /// Replaces the file by its tiled version, if it has one; returns what is wrong with the image, if it is
  /// known to be bad.
  std::string tile(std::size_t field, const decode::ImageData& image, store::RecordField& part,
                   Converted& out);
  /// Decodes and resizes as the options say; returns what is wrong with the image, if anything is.
  std::string change(std::size_t field, const decode::ImageData& image, Image& out, bool& warned);

  const std::vector<source::SourceField>& fields_;
  const store::Options options_;
  std::vector<Image> images_;
  std::vector<std::uint8_t> scratch_;
  decode::Decoder decoder_;
  decode::JpegTiler tiler_;
  transform::Scratch pixels_;
};

}  // namespace headrace::server::pack
