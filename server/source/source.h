// Where samples come from. A source knows its samples' count, names, fields and labels, and reads one sample:
// one item per field, not yet decoded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"
#include "headrace/field.h"
#include "server/decode/decoder.h"

namespace headrace::server::source {

/// What the bytes of a field's items are.
enum class Content : std::uint8_t {
  kEncodedImage,  ///< a JPEG or PNG file
  kPixels,        ///< 8-bit pixels, as Item::pixels says
  kValues,        ///< dtype and shape, as they go into the batch
  kRagged         ///< any number of values of dtype and shape: boxes, tokens, text
};

struct SourceField {
  std::string name = "image";
  Content content = Content::kEncodedImage;
  std::int32_t channels = 3;           ///< of images: 1 if all of them are gray
  std::int32_t height = 0, width = 0;  ///< of images; 0: they differ
  /// Of images: their sides are so many times those of the sample's images of scale 1 (super-resolution
  /// pairs). Geometry that fields share is in pixels of scale 1.
  std::int32_t scale = 1;
  /// Of images: each pixel is a class, the palette's index or the gray value as stored. One channel; never
  /// interpolated.
  bool mask = false;
  DType dtype = DType::kUInt8;      ///< kValues, kRagged
  std::vector<std::int64_t> shape;  ///< kValues: of one sample; kRagged: of one of its values

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

/// Its reader's, and reused for sample after sample.
struct Sample {
  std::vector<Item> items;

  Item& item(std::size_t field) {
    if (items.size() <= field) items.resize(field + 1);
    return items[field];
  }
};

/// Samples that lie in memory, and where: see Source::lend().
struct Lent {
  std::vector<std::uint64_t> indices;                ///< of the samples; afterwards of no meaning
  std::vector<std::span<const std::uint8_t>> items;  ///< of sample i: [i * fields, (i + 1) * fields)
  std::vector<decode::PixelShape> pixels;            ///< of each field: Item::pixels of every sample
};

/// Thread safety: all members are const and may be called from any number of workers.
class Source {
 public:
  virtual ~Source() = default;

  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// What a sample has besides its class; at least one.
  [[nodiscard]] virtual const std::vector<SourceField>& fields() const = 0;
  /// Reads the sample whole into `out`, an item per field. Errors: kTransientIo for what the system
  /// says of reading (after the retries of the policy), kDatasetInvalid if the file vanished or changed size
  /// (of samples that are a file each: of those in the SizeSample), kBadSample if above the size limit (that
  /// alone: an empty file is read as empty, and the decoder names it).
  virtual Result<void> read(std::uint64_t index, Sample& out) const = 0;
  /// What read() would give of all these samples, without a copy, in memory that lives as long as the source.
  /// False: this source has to read.
  virtual bool lend(Lent& lent) const { return static_cast<void>(lent), false; }
  /// What this is a part of, the outermost of all; itself if of nothing.
  [[nodiscard]] virtual const Source& whole() const { return *this; }
  /// Below whole().size(); rises with `index`.
  [[nodiscard]] virtual std::uint64_t index_in_whole(std::uint64_t index) const { return index; }
  /// What batches report as the sample's index: the index in the whole source, also where this is a part of
  /// one, or was packed from one. Rises with `index`.
  [[nodiscard]] virtual std::uint64_t whole_index(std::uint64_t index) const { return index; }
  /// Whether samples have a class each, which batches then carry as the last field, "label": int64, or
  /// float32 shares of all classes where rows are mixed.
  [[nodiscard]] virtual bool labelled() const { return true; }
  /// The class; 0 if there are none.
  [[nodiscard]] virtual std::int64_t label(std::uint64_t index) const = 0;
  /// Of a kRagged field: how many values `rows` samples can have together at most (one may come twice). What
  /// a batch needs room for; known from the index alone.
  [[nodiscard]] virtual std::uint64_t most_values(std::size_t field, std::uint64_t rows) const {
    return static_cast<void>(field), rows;
  }
  /// Path relative to the source's root: for errors and manifests.
  [[nodiscard]] virtual std::string name(std::uint64_t index) const = 0;
  [[nodiscard]] virtual const std::vector<std::string>& class_names() const = 0;
  /// Of the dataset: xxh3 over sorted (relative path, size, label); no mtime. Sizes: see SizeSample.
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
  /// The error that made bytes of this source permanently unreadable since it was opened: a mapped file was
  /// truncated. Rows made since may hold zeros: check after making rows, before publishing them. Composites
  /// check all their parts.
  [[nodiscard]] virtual std::optional<Error> fault() const { return std::nullopt; }
  /// What of the dataset is not served though its owner may think so; empty: nothing.
  [[nodiscard]] virtual std::string warning() const { return {}; }
};

}  // namespace headrace::server::source
