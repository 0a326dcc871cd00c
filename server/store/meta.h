// The description of a packed database: one JSON record.
//
// During packing, it is under a key that sorts before all samples (so that these can be appended) and has
// `complete: false`; the last transaction replaces it by a record under "meta". A database with "meta" is
// therefore complete. Samples have keys of 8 bytes: their index, big-endian.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"
#include "server/sample/sample.h"
#include "server/store/compression.h"

namespace headrace::server::store {

inline constexpr std::string_view kMetaKey = "meta";
inline constexpr std::string_view kPackingKey{"\0\0\0\0", 4};
// Tables of 8 bytes per sample.
inline constexpr std::string_view kLabelsKey = "labels";
inline constexpr std::string_view kWholesKey = "wholes";  ///< Source::whole_index, if it is not the index

/// For a ragged field: numbers of values, descending. Never 8 bytes long.
std::string lengths_key(std::size_t field);

/// Bytes of one value of a ragged field.
std::uint64_t value_bytes(const sample::SourceField& field);

using IndexKey = std::array<std::uint8_t, 8>;
IndexKey index_key(std::uint64_t index);

enum class Storing : std::uint8_t {
  kEncoded,  ///< files, unchanged
  kDecoded,  ///< images as 8-bit pixels
  kTiled     ///< JPEGs with an index of tiles (decode/tile_jpeg.h), the same pixels; other files as they are
};
std::string_view name_of(Storing storing);
std::optional<Storing> storing_from_name(std::string_view name);

/// A resize of images, as torchvision's Resize; none if all is 0.
struct ResizeTo {
  std::int32_t shorter = 0;  ///< the new length of the shorter side
  std::int32_t height = 0, width = 0;
  [[nodiscard]] bool wanted() const { return shorter > 0 || height > 0; }
  friend bool operator==(const ResizeTo&, const ResizeTo&) = default;
};
/// "256", "224x320" (height x width), "none".
std::string to_string(const ResizeTo& resize);

struct Options {
  Storing storing = Storing::kEncoded;
  Compression compression = Compression::kNone;
  ResizeTo resize;
};

struct Meta {
  static constexpr int kFormat = 1;
  /// The format of sets with tiled files: earlier readers would show the padding.
  static constexpr int kTiledFormat = 2;
  /// Increase it when the same source and options would give other records.
  static constexpr int kAlgorithm = 1;

  bool complete = false;
  std::uint64_t count = 0;  ///< samples, once it is complete; 0: streamed, and not known yet
  std::vector<sample::SourceField> fields;
  bool labelled = true;
  std::vector<std::string> classes;
  std::uint64_t source_fingerprint = 0;
  Options options;
  int algorithm = kAlgorithm;
  std::uint64_t labels_hash = 0, wholes_hash = 0;  ///< xxh3 of the tables
  bool wholes = false;                             ///< whether there is such a table
  /// The samples came one after the other from another program. Their content is known only at the end, so
  /// the fingerprint covers the samples themselves; the source's fingerprint covers what was announced.
  bool streamed = false;
  // Progress so far:
  std::uint64_t content_hash = 0;  ///< streamed: of all samples in order
  /// Streamed: sizes of each field's images; 0: none yet, -1: they differ.
  std::vector<decode::ImageSize> sizes;
  std::uint64_t raw_bytes = 0;                 ///< of all fields, as read from the source
  std::uint64_t undecodable = 0;               ///< samples that could not be decoded when they were packed
  std::vector<std::string> first_undecodable;  ///< the first ten: "name: reason (detail)"

  /// The source's fingerprint if the samples are the source's, byte for byte; otherwise it also covers the
  /// changes.
  [[nodiscard]] std::uint64_t fingerprint() const;
  /// Why this cannot be continued as `other`: "compression: expected zstd, found lz4; ...".
  [[nodiscard]] std::string difference(const Meta& other) const;
  [[nodiscard]] std::string to_json() const;
  /// `where` begins the message. kDatasetInvalid: not such a record, invalid values. kVersionMismatch:
  /// another format.
  static Result<Meta> from_json(std::string_view text, const std::string& where);
};

}  // namespace headrace::server::store
