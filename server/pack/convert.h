// From a sample as its feed gives it to its record: decoded, tiled or resized where that is asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "server/decode/tile_jpeg.h"
#include "server/pack/feed.h"
#include "server/store/meta.h"
#include "server/store/writer.h"
#include "server/transform/plan.h"

namespace headrace::server::pack {

/// The fields of the packed set. kInvalidArgument: a resize of a set whose fields go together pixel by pixel
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
  /// `fields`: what samples have; they outlive this.
  Converter(const std::vector<source::SourceField>& fields, const store::Options& options)
      : fields_(fields), options_(options), images_(fields.size()) {}

  /// An image that cannot be decoded is kept as the file that it is; a sample that its source calls bad is
  /// packed as a bad one.
  Converted convert(std::uint64_t index, const FedSample& given);

 private:
  struct Image {
    std::vector<std::uint8_t> bytes;
    decode::PixelShape shape;
  };

  /// The file, or what it became by tiling.
  std::span<const std::uint8_t> tile(std::span<const std::uint8_t> file, std::vector<std::uint8_t>& out,
                                     decode::TilingCounts& counts);
  /// Decodes and resizes as the options say; what is wrong with the image, if something is.
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
