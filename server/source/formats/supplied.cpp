#include "server/source/formats/supplied.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "server/store/field_json.h"

namespace headrace::server::source {
namespace {

using nlohmann::json;

// Packed samples: Head | RowHead of each row | ItemHead of each row's fields | the items' bytes.
static_assert(std::endian::native == std::endian::little, "heads are read where they lie");

struct Head {
  std::uint32_t rows = 0, fields = 0;
};
struct RowHead {
  std::uint64_t index = 0;
  std::int64_t label = 0;
  std::uint64_t unreadable = 0;
};
struct ItemHead {
  std::uint64_t bytes = 0;
  std::int32_t width = 0, height = 0;  ///< of pixels; 0: a file, or values
  std::int32_t channels = 0, planar = 0;
};
static_assert(std::has_unique_object_representations_v<Head> &&
              std::has_unique_object_representations_v<RowHead> &&
              std::has_unique_object_representations_v<ItemHead>);

std::size_t heads_of(std::size_t rows, std::size_t fields) {
  return sizeof(Head) + rows * (sizeof(RowHead) + fields * sizeof(ItemHead));
}

template <class T>
void put(std::vector<std::uint8_t>& out, std::size_t at, const T& value) {
  std::memcpy(out.data() + at, &value, sizeof value);
}

template <class T>
T take(std::span<const std::uint8_t> from, std::size_t at) {
  T value;
  std::memcpy(&value, from.data() + at, sizeof value);
  return value;
}

}  // namespace

std::string SuppliedAbout::to_json() const {
  json list = json::array();
  for (const SourceField& field : fields) list.push_back(store::to_json(field));
  return json{{"positions", positions}, {"fields", std::move(list)},  {"labelled", labelled},
              {"classes", classes},     {"fingerprint", fingerprint}, {"sampler_content", sampler_content}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<SuppliedAbout> SuppliedAbout::from_json(std::string_view text) try {
  const json value = json::parse(text);
  SuppliedAbout about{.positions = value.at("positions").get<std::uint64_t>(),
                      .labelled = value.at("labelled").get<bool>(),
                      .classes = value.at("classes").get<std::vector<std::string>>(),
                      .fingerprint = value.at("fingerprint").get<std::uint64_t>(),
                      .sampler_content = value.at("sampler_content").get<std::uint64_t>()};
  for (const json& entry : value.at("fields")) {
    auto field = store::field_from_json(entry);
    if (!field) return fail(ErrorCode::kInvalidArgument, field.error().message);
    about.fields.push_back(std::move(*field));
  }
  if (about.positions == 0 || about.fields.empty())
    return fail(ErrorCode::kInvalidArgument, "the description of the source has no samples or no fields");
  return about;
} catch (const json::exception& error) {
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("invalid description of the source: {}; expected that of describe_source()", error.what()));
}

Result<std::vector<std::uint8_t>> pack_samples(const Source& source, std::span<const std::uint64_t> samples,
                                               std::size_t expected) {
  const std::size_t fields = source.fields().size(), rows = samples.size();
  std::vector<std::uint8_t> out;
  out.reserve(heads_of(rows, fields) + expected);
  out.resize(heads_of(rows, fields));
  put(out, 0, Head{static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(fields)});
  Sample sample;
  for (std::size_t i = 0; i < rows; ++i) {
    const std::uint64_t index = samples[i];
    const auto read = source.read(index, sample);
    if (!read && read.error().code != ErrorCode::kBadSample) return fail(read.error());
    put(out, sizeof(Head) + i * sizeof(RowHead),
        RowHead{source.whole_index(index), source.label(index), read ? 0U : 1U});
    for (std::size_t f = 0; f < fields && read; ++f) {
      const Item& item = sample.item(f);
      const auto [width, height, channels, planar] = item.pixels;
      put(out, sizeof(Head) + rows * sizeof(RowHead) + (i * fields + f) * sizeof(ItemHead),
          ItemHead{item.bytes.size(), width, height, channels, planar ? 1 : 0});
      out.insert(out.end(), item.bytes.begin(), item.bytes.end());
    }
  }
  if (const auto lost = source.fault()) return fail(*lost);
  return out;
}

Result<void> Supplied::hand_over(std::uint64_t first, std::uint32_t count,
                                 std::span<const std::uint8_t> packed) {
  const std::size_t fields = about_.fields.size();
  const auto wrong = [&](const char* why) {
    take_back();
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the samples of {} rows from position {} {}; pass what samples() returned for "
                            "the same rows",
                            count, first, why));
  };
  if (packed.size() < heads_of(count, fields)) return wrong("are too few bytes");
  const auto head = take<Head>(packed, 0);
  if (head.rows != count || head.fields != fields) return wrong("are those of other rows or fields");
  first_ = first;
  rows_.clear();
  pieces_.clear();
  auto left = packed.subspan(heads_of(count, fields));
  for (std::size_t i = 0; i < count; ++i) {
    const auto row = take<RowHead>(packed, sizeof(Head) + i * sizeof(RowHead));
    rows_.push_back({row.index, row.label, row.unreadable != 0});
    for (std::size_t f = 0; f < fields; ++f) {
      const auto item = take<ItemHead>(packed, heads_of(count, 0) + (i * fields + f) * sizeof(ItemHead));
      if (item.bytes > left.size()) return wrong("are truncated");
      pieces_.push_back({left.first(item.bytes), {item.width, item.height, item.channels, item.planar != 0}});
      left = left.subspan(item.bytes);
    }
  }
  if (!left.empty()) return wrong("are too many bytes");
  return {};
}

Result<void> Supplied::read(std::uint64_t index, Sample& out) const {
  const Row* const found = row(index);
  if (found == nullptr)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the sample at position {} was not handed over; pass the rows' samples", index));
  if (found->unreadable) return fail(ErrorCode::kBadSample, "it could not be read");
  for (std::size_t f = 0; f < about_.fields.size(); ++f) {
    const Piece& piece = pieces_[(index - first_) * about_.fields.size() + f];
    out.item(f).bytes = piece.bytes;
    out.item(f).pixels = piece.pixels;
  }
  return {};
}

std::uint64_t Supplied::whole_index(std::uint64_t index) const {
  const Row* const found = row(index);
  return found != nullptr ? found->index : index;
}

std::int64_t Supplied::label(std::uint64_t index) const {
  const Row* const found = row(index);
  return found != nullptr ? found->label : 0;
}

std::string Supplied::name(std::uint64_t index) const {
  return fmt::format("sample {}", whole_index(index));
}

}  // namespace headrace::server::source
