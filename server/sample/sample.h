// A sample as it is read: one item per field, not yet decoded. Sources make samples; packed databases and
// caches store them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/field.h"
#include "server/decode/decoder.h"

namespace headrace::server::sample {

/// How an item's bytes are interpreted.
enum class Content : std::uint8_t {
  kEncodedImage,  ///< a JPEG or PNG file
  kPixels,        ///< 8-bit pixels, as Item::pixels says
  kValues,        ///< dtype and shape, unchanged in the batch
  kRagged         ///< any number of values of dtype and shape: boxes, tokens, text
};

struct SourceField {
  std::string name = "image";
  Content content = Content::kEncodedImage;
  std::int32_t channels = 3;           ///< of images: 1 if all of them are gray
  std::int32_t height = 0, width = 0;  ///< of images; 0: they differ
  /// Images only: their sides are `scale` times as long as those of the sample's images with scale 1
  /// (super-resolution pairs). Geometry that fields share is in pixels of scale 1.
  std::int32_t scale = 1;
  /// Images only: each pixel is a class, namely the palette's index or the gray value as stored. Masks have
  /// one channel and are never interpolated.
  bool mask = false;
  DType dtype = DType::kUInt8;      ///< kValues, kRagged
  std::vector<std::int64_t> shape;  ///< kValues: of one sample; kRagged: of one value

  [[nodiscard]] bool is_image() const {
    return content == Content::kEncodedImage || content == Content::kPixels;
  }
};

/// One field of one sample.
struct Item {
  std::span<const std::uint8_t> bytes;  ///< in `storage`, or in memory that lives as long as the source
  decode::PixelShape pixels;            ///< kPixels
  std::vector<std::uint8_t> storage;    ///< reused: no allocation in the steady state

  void own(std::size_t size) {
    storage.resize(size);
    bytes = storage;
  }
  [[nodiscard]] decode::ImageData image() const { return {bytes, pixels}; }
};

/// Owned by its reader, and reused for sample after sample.
struct Sample {
  std::vector<Item> items;

  Item& item(std::size_t field) {
    if (items.size() <= field) items.resize(field + 1);
    return items[field];
  }
};

}  // namespace headrace::server::sample
