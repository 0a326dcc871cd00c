// The value of one sample in a packed database: heads, the name, each field's bytes, a checksum. All integers
// are little-endian and have a fixed width.
//
//   RecordHead | FieldHead per field | name | stored bytes of each field | xxh3-64 of all before it
//
// Name and fields are padded to 8 bytes. LMDB aligns values to 8 here, because every key and value of a
// packed database has a multiple of 8 bytes (except its last ones), so uncompressed fields can be used in
// place.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <vector>

#include "server/sample/sample.h"
#include "server/store/compression.h"

namespace headrace::server::store {

static_assert(std::endian::native == std::endian::little, "records are read where they lie");

inline constexpr std::uint32_t kRecordMagic = 0x43455248;  // "HREC"
inline constexpr std::uint16_t kRecordVersion = 1;
/// Limit of an uncompressed field: a record that claims more is damaged.
inline constexpr std::uint64_t kMostUnpacked = std::uint64_t{1} << 30;

struct RecordHead {
  std::uint32_t magic = kRecordMagic;
  std::uint16_t version = kRecordVersion;
  std::uint16_t unreadable = 0;  ///< 1: the source reported a bad sample; its fields are empty
  std::uint32_t fields = 0;
  std::uint32_t name_bytes = 0;
  std::int64_t label = 0;
  std::uint64_t index = 0;
  std::uint64_t bytes = 0;  ///< of the whole value
};
static_assert(sizeof(RecordHead) == 40 && std::is_trivially_copyable_v<RecordHead>);

struct FieldHead {
  std::uint64_t bytes = 0;             ///< uncompressed
  std::uint64_t stored = 0;            ///< in the record, without padding
  std::int32_t width = 0, height = 0;  ///< of pixels; 0: a file, or values
  std::uint8_t channels = 0;           ///< of pixels
  std::uint8_t planar = 0;             ///< of pixels
  std::uint8_t compression = 0;        ///< Compression
  std::uint8_t undecodable = 0;        ///< 1: a file that could not be decoded when it was packed
  std::uint32_t reserved = 0;
};
static_assert(sizeof(FieldHead) == 32 && std::is_trivially_copyable_v<FieldHead>);

/// The input of a record's field.
struct RecordField {
  std::span<const std::uint8_t> bytes;
  decode::PixelShape pixels{.width = 0, .height = 0, .channels = 0, .planar = false};
  bool undecodable = false;
};
struct RecordContent {
  std::uint64_t index = 0;
  std::int64_t label = 0;
  std::string_view name;
  bool unreadable = false;
  std::span<const RecordField> fields;
};

/// Replaces `out` by the record. A field that compression does not shrink is stored uncompressed. `scratch`:
/// reused.
void encode(const RecordContent& content, Compression how, std::vector<std::uint8_t>& scratch,
            std::vector<std::uint8_t>& out);

/// A record in place, with its bounds checked: it refers to nothing outside itself.
class RecordView {
 public:
  /// The error says what is wrong, without where: "its head is damaged".
  static tl::expected<RecordView, const char*> of(std::span<const std::uint8_t> value, std::uint64_t index,
                                                  std::size_t fields);

  [[nodiscard]] const RecordHead& head() const { return head_; }
  [[nodiscard]] std::string_view name() const;
  [[nodiscard]] FieldHead field(std::size_t index) const;
  /// As stored. Skips over the fields before it.
  [[nodiscard]] std::span<const std::uint8_t> stored(std::size_t index) const;
  /// Whether the checksum is right. The only member that reads the whole record.
  [[nodiscard]] bool sound() const;
  /// The field's bytes: a span into the record, or uncompressed into the item's storage. False: the
  /// compressed bytes are damaged.
  bool unpack(std::size_t index, sample::Item& item) const;

 private:
  RecordView(std::span<const std::uint8_t> value, const RecordHead& head) : value_(value), head_(head) {}

  std::span<const std::uint8_t> value_;
  RecordHead head_;
};

}  // namespace headrace::server::store
