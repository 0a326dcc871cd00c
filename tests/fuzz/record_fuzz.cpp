// Records of packed databases, and the description of such a set. Input: the kind (one byte), then its bytes.
#include "server/store/record.h"

#include "server/store/meta.h"
#include "tests/fuzz/sources.h"

namespace headrace::server::store {
namespace {

/// A field may claim up to 1 GiB: more than this only costs time.
constexpr std::uint64_t kMostUnpackedHere = std::uint64_t{1} << 20;

void read_record(fuzz::Bytes value) {
  RecordHead head;
  if (value.size() >= sizeof head) std::memcpy(&head, value.data(), sizeof head);
  const std::size_t fields = std::min<std::size_t>(head.fields, 8);
  const auto view = RecordView::of(value, head.index, fields);
  if (!view) return require(*view.error() != '\0', "a refusal says why");
  const auto within = [&](const void* begin, std::size_t size) {
    const auto* at = static_cast<const std::uint8_t*>(begin);
    return size == 0 || (at >= value.data() && size <= value.size() &&
                         at - value.data() <= static_cast<std::ptrdiff_t>(value.size() - size));
  };
  require(within(view->name().data(), view->name().size()), "a name is in its record");
  std::vector<RecordField> content;
  std::vector<sample::Item> items(fields);
  for (std::size_t f = 0; f < fields; ++f) {
    require(within(view->stored(f).data(), view->stored(f).size()), "a field is in its record");
    if (view->field(f).bytes > kMostUnpackedHere || !view->unpack(f, items[f])) return;
    require(items[f].bytes.size() == view->field(f).bytes, "a field has the size of its head");
    fuzz::touch(items[f].bytes);
    content.push_back({items[f].bytes, items[f].pixels, view->field(f).undecodable != 0});
  }
  // What was read is written as a record of the same content.
  std::vector<std::uint8_t> scratch, written;
  encode({view->head().index, view->head().label, view->name(), view->head().unreadable != 0, content},
         view->head().label % 2 == 0 ? Compression::kLz4 : Compression::kZstd, scratch, written);
  const auto again = RecordView::of(written, view->head().index, fields);
  require(again && again->sound() && again->name() == view->name(), "a record is read as it was written");
  for (std::size_t f = 0; f < fields; ++f) {
    sample::Item item;
    require(again->unpack(f, item) && std::ranges::equal(item.bytes, items[f].bytes) &&
                item.pixels == items[f].pixels,
            "a field is read as it was written");
  }
}

void read_meta(std::string_view text) {
  const auto meta = Meta::from_json(text, "x");
  if (!meta) {
    require(
        meta.error().code == ErrorCode::kDatasetInvalid || meta.error().code == ErrorCode::kVersionMismatch,
        "a description is refused by name");
    return;
  }
  const auto again = Meta::from_json(meta->to_json(), "x");
  require(again && again->to_json() == meta->to_json(), "a description is read as it was written");
  require(meta->difference(*again).empty() && meta->fingerprint() == again->fingerprint(),
          "a description does not differ from itself");
}

}  // namespace
}  // namespace headrace::server::store

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  fuzz::Input input(data, size);
  if (input.take<std::uint8_t>() % 2 == 0)
    server::store::read_record(input.rest());
  else
    server::store::read_meta(fuzz::text_of(input.rest()));
  return 0;
}
