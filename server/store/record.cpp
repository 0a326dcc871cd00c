#include "server/store/record.h"

#include <xxhash.h>

#include <cstring>

namespace headrace::server::store {
namespace {

constexpr std::uint64_t kChecksum = sizeof(std::uint64_t);

constexpr std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

constexpr std::uint64_t name_at(std::uint64_t fields) {
  return sizeof(RecordHead) + fields * sizeof(FieldHead);
}

template <class T>
void put(std::vector<std::uint8_t>& out, std::uint64_t at, const T& value) {
  std::memcpy(out.data() + at, &value, sizeof value);
}

void append(std::vector<std::uint8_t>& out, const void* bytes, std::size_t count) {
  const auto* from = static_cast<const std::uint8_t*>(bytes);
  out.insert(out.end(), from, from + count);
  out.resize(padded(out.size()));
}

const char* wrong_with(const FieldHead& field) {
  const auto compression = static_cast<Compression>(field.compression);
  if (compression > Compression::kZstd) return "its compression is not supported";
  if (compression == Compression::kNone ? field.stored != field.bytes : field.bytes > kMostUnpacked)
    return "a field's head is damaged";
  if (field.width == 0 && field.height == 0)
    return field.channels == 0 && field.planar == 0 ? nullptr : "a field's head is damaged";
  const auto side = [](std::int32_t value) {
    return value >= 1 && value <= static_cast<std::int32_t>(decode::kMaxSide);
  };
  if (!side(field.width) || !side(field.height) || (field.channels != 1 && field.channels != 3) ||
      field.planar > 1 ||
      std::uint64_t{field.channels} * static_cast<std::uint64_t>(field.width) *
              static_cast<std::uint64_t>(field.height) !=
          field.bytes)
    return "a field's size differs from its head's";
  return nullptr;
}

}  // namespace

void encode(const RecordContent& content, Compression how, std::vector<std::uint8_t>& scratch,
            std::vector<std::uint8_t>& out) {
  out.assign(name_at(content.fields.size()), 0);
  append(out, content.name.data(), content.name.size());
  for (std::size_t f = 0; f < content.fields.size(); ++f) {
    const RecordField& field = content.fields[f];
    const bool packed = field.bytes.size() <= kMostUnpacked && compress(how, field.bytes, scratch);
    const std::span<const std::uint8_t> stored =
        packed ? std::span<const std::uint8_t>(scratch) : field.bytes;
    FieldHead head{.bytes = field.bytes.size(), .stored = stored.size()};
    if (field.pixels.width > 0) {
      head.width = field.pixels.width;
      head.height = field.pixels.height;
      head.channels = static_cast<std::uint8_t>(field.pixels.channels);
      head.planar = field.pixels.planar ? 1 : 0;
    }
    head.compression = static_cast<std::uint8_t>(packed ? how : Compression::kNone);
    head.undecodable = field.undecodable ? 1 : 0;
    put(out, sizeof(RecordHead) + f * sizeof(FieldHead), head);
    append(out, stored.data(), stored.size());
  }
  put(out, 0,
      RecordHead{.unreadable = static_cast<std::uint16_t>(content.unreadable ? 1 : 0),
                 .fields = static_cast<std::uint32_t>(content.fields.size()),
                 .name_bytes = static_cast<std::uint32_t>(content.name.size()),
                 .label = content.label,
                 .index = content.index,
                 .bytes = out.size() + kChecksum});
  const std::uint64_t checksum = XXH3_64bits(out.data(), out.size());
  append(out, &checksum, sizeof checksum);
}

tl::expected<RecordView, const char*> RecordView::of(std::span<const std::uint8_t> value, std::uint64_t index,
                                                     std::size_t fields) {
  const auto refuse = [](const char* why) { return tl::make_unexpected(why); };
  RecordHead head;
  if (value.size() < sizeof head + kChecksum) return refuse("it is truncated within its head");
  std::memcpy(&head, value.data(), sizeof head);
  if (head.magic != kRecordMagic) return refuse("it is not a record");
  if (head.version != kRecordVersion) return refuse("its version is not supported");
  if (head.bytes != value.size()) return refuse("its length differs from its head's");
  if (head.index != index) return refuse("it belongs to another sample");
  if (head.fields != fields) return refuse("its number of fields differs from the set's");
  // All sums stay below the value's size, so none can overflow.
  std::uint64_t left = value.size() - kChecksum;
  const auto take = [&left](std::uint64_t bytes) {
    if (bytes > left || padded(bytes) > left) return false;
    left -= padded(bytes);
    return true;
  };
  if (fields > left / sizeof(FieldHead) || !take(name_at(fields)) || !take(head.name_bytes))
    return refuse("it is truncated within its head");
  const RecordView view(value, head);
  for (std::size_t f = 0; f < fields; ++f) {
    const FieldHead field = view.field(f);
    if (const char* wrong = wrong_with(field)) return refuse(wrong);
    if (!take(field.stored)) return refuse("a field reaches beyond its end");
  }
  if (left != 0) return refuse("it is longer than its fields");
  return view;
}

std::string_view RecordView::name() const {
  return {reinterpret_cast<const char*>(value_.data()) + name_at(head_.fields), head_.name_bytes};
}

FieldHead RecordView::field(std::size_t index) const {
  FieldHead field;
  std::memcpy(&field, value_.data() + sizeof(RecordHead) + index * sizeof(FieldHead), sizeof field);
  return field;
}

std::span<const std::uint8_t> RecordView::stored(std::size_t index) const {
  std::uint64_t at = name_at(head_.fields) + padded(head_.name_bytes);
  for (std::size_t f = 0; f < index; ++f) at += padded(field(f).stored);
  return value_.subspan(at, field(index).stored);
}

bool RecordView::sound() const {
  std::uint64_t checksum = 0;
  const std::size_t covered = value_.size() - kChecksum;
  std::memcpy(&checksum, value_.data() + covered, sizeof checksum);
  return XXH3_64bits(value_.data(), covered) == checksum;
}

bool RecordView::unpack(std::size_t index, sample::Item& item) const {
  const FieldHead head = field(index);
  const auto bytes = stored(index);
  item.pixels = {head.width, head.height, head.channels, head.planar != 0};
  if (head.compression == static_cast<std::uint8_t>(Compression::kNone)) {
    item.bytes = bytes;
    return true;
  }
  item.own(head.bytes);
  return decompress(static_cast<Compression>(head.compression), bytes, item.storage);
}

}  // namespace headrace::server::store
