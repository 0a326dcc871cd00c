#include "server/store/meta.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

namespace headrace::server::store {
namespace {

using nlohmann::json;
using source::Content;
using source::SourceField;

constexpr std::array<std::string_view, 4> kContents = {"encoded_image", "pixels", "values", "ragged"};
constexpr std::int64_t kMostDims = 6;

json field_json(const SourceField& field) {
  return {{"name", field.name},         {"content", kContents.at(static_cast<std::size_t>(field.content))},
          {"channels", field.channels}, {"height", field.height},
          {"width", field.width},       {"scale", field.scale},
          {"mask", field.mask},         {"dtype", headrace::name_of(field.dtype)},
          {"shape", field.shape}};
}

bool is_side(std::int32_t value, std::int32_t least) {
  return value >= least && value <= static_cast<std::int32_t>(decode::kMaxSide);
}

bool makes_sense(const SourceField& field) {
  if (field.name.empty() || field.name.size() > 47) return false;
  if (field.channels != 1 && field.channels != 3) return false;
  if (!is_side(field.height, 0) || !is_side(field.width, 0)) return false;
  if ((field.height == 0) != (field.width == 0) || !is_side(field.scale, 1)) return false;
  std::int64_t bytes = 1;
  for (const std::int64_t dim : field.shape)
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes) || bytes > std::int64_t{1} << 40) return false;
  return static_cast<std::int64_t>(field.shape.size()) <= kMostDims;
}

std::optional<SourceField> read_field(const json& value) {
  SourceField field;
  const auto content = std::find(kContents.begin(), kContents.end(), value.at("content").get<std::string>());
  const auto dtype = dtype_from_name(value.at("dtype").get<std::string>());
  if (content == kContents.end() || !dtype) return std::nullopt;
  field.name = value.at("name").get<std::string>();
  field.content = static_cast<Content>(content - kContents.begin());
  field.channels = value.at("channels").get<std::int32_t>();
  field.height = value.at("height").get<std::int32_t>();
  field.width = value.at("width").get<std::int32_t>();
  field.scale = value.at("scale").get<std::int32_t>();
  field.mask = value.at("mask").get<bool>();
  field.dtype = *dtype;
  field.shape = value.at("shape").get<std::vector<std::int64_t>>();
  return makes_sense(field) ? std::optional(field) : std::nullopt;
}

std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::uint64_t from_hex(const json& value) {
  return std::stoull(value.get<std::string>(), nullptr, 16);
}

/// Throws json's errors, and std::exception for values that make no sense.
Meta read(const json& value) {
  Meta meta;
  const auto refuse = [](const char* what) { throw std::invalid_argument(what); };
  meta.complete = value.at("complete").get<bool>();
  meta.count = value.at("count").get<std::uint64_t>();
  for (const json& entry : value.at("fields")) {
    auto field = read_field(entry);
    if (!field) refuse("a field makes no sense");
    meta.fields.push_back(std::move(*field));
  }
  if (meta.fields.empty() || meta.count == 0) refuse("no field, or no sample");
  meta.labelled = value.at("labelled").get<bool>();
  meta.classes = value.at("classes").get<std::vector<std::string>>();
  meta.source_fingerprint = from_hex(value.at("source_fingerprint"));
  const json& options = value.at("options");
  meta.options.storing = options.at("store").get<std::string>() == name_of(Storing::kDecoded)
                             ? Storing::kDecoded
                             : Storing::kEncoded;
  const auto compression = compression_from_name(options.at("compress").get<std::string>());
  if (!compression) refuse("unknown compression");
  meta.options.compression = *compression;
  const json& resize = options.at("resize");
  meta.options.resize = {resize.at("shorter").get<std::int32_t>(), resize.at("height").get<std::int32_t>(),
                         resize.at("width").get<std::int32_t>()};
  meta.algorithm = value.at("algorithm").get<int>();
  meta.labels_hash = from_hex(value.at("labels_hash"));
  meta.wholes_hash = from_hex(value.at("wholes_hash"));
  meta.wholes = value.at("wholes").get<bool>();
  meta.raw_bytes = value.at("raw_bytes").get<std::uint64_t>();
  meta.undecodable = value.at("undecodable").get<std::uint64_t>();
  meta.first_undecodable = value.at("first_undecodable").get<std::vector<std::string>>();
  return meta;
}

}  // namespace

std::string lengths_key(std::size_t field) {
  return fmt::format("lengths/{:04}", field);
}

std::uint64_t value_bytes(const SourceField& field) {
  std::uint64_t bytes = size_of(field.dtype);
  for (const std::int64_t dim : field.shape) bytes *= static_cast<std::uint64_t>(dim);
  return std::max<std::uint64_t>(bytes, 1);
}

IndexKey index_key(std::uint64_t index) {
  IndexKey key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::uint8_t>(index >> (56 - 8 * i));
  return key;
}

std::string_view name_of(Storing storing) {
  return storing == Storing::kDecoded ? "decoded" : "encoded";
}

std::string to_string(const ResizeTo& resize) {
  if (resize.shorter > 0) return std::to_string(resize.shorter);
  return resize.wanted() ? fmt::format("{}x{}", resize.height, resize.width) : "none";
}

std::uint64_t Meta::fingerprint() const {
  if (options.storing == Storing::kEncoded && !options.resize.wanted()) return source_fingerprint;
  const std::string how =
      fmt::format("{} {} {}", name_of(options.storing), to_string(options.resize), algorithm);
  return XXH3_64bits_withSeed(how.data(), how.size(), source_fingerprint);
}

std::string Meta::difference(const Meta& other) const {
  std::vector<std::string> all;
  const auto compare = [&all](std::string_view what, std::string_view mine, std::string_view asked) {
    if (mine != asked) all.push_back(fmt::format("its {} is {}, and {} is asked for", what, mine, asked));
  };
  compare("source's fingerprint", hex(source_fingerprint), hex(other.source_fingerprint));
  compare("number of samples", std::to_string(count), std::to_string(other.count));
  compare("store", name_of(options.storing), name_of(other.options.storing));
  compare("compression", name_of(options.compression), name_of(other.options.compression));
  compare("resize", to_string(options.resize), to_string(other.options.resize));
  compare("packing algorithm", std::to_string(algorithm), std::to_string(other.algorithm));
  return fmt::format("{}", fmt::join(all, "; "));
}

std::string Meta::to_json() const {
  json list = json::array();
  for (const SourceField& field : fields) list.push_back(field_json(field));
  const json value{{"headrace", "packed"},
                   {"format", kFormat},
                   {"complete", complete},
                   {"count", count},
                   {"fields", std::move(list)},
                   {"labelled", labelled},
                   {"classes", classes},
                   {"source_fingerprint", hex(source_fingerprint)},
                   {"fingerprint", hex(fingerprint())},
                   {"options",
                    {{"store", name_of(options.storing)},
                     {"compress", store::name_of(options.compression)},
                     {"resize",
                      {{"shorter", options.resize.shorter},
                       {"height", options.resize.height},
                       {"width", options.resize.width}}}}},
                   {"algorithm", algorithm},
                   {"labels_hash", hex(labels_hash)},
                   {"wholes_hash", hex(wholes_hash)},
                   {"wholes", wholes},
                   {"raw_bytes", raw_bytes},
                   {"undecodable", undecodable},
                   {"first_undecodable", first_undecodable}};
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Meta> Meta::from_json(std::string_view text, const std::string& where) try {
  const json value = json::parse(text);
  if (value.at("headrace").get<std::string>() != "packed") throw std::invalid_argument("another program's");
  if (const int format = value.at("format").get<int>(); format != kFormat)
    return fail(ErrorCode::kVersionMismatch,
                fmt::format("{}: was packed in format {}, this version reads {}; pack it again, or take the "
                            "version that packed it",
                            where, format, kFormat));
  return read(value);
} catch (const std::exception& error) {
  return fail(
      ErrorCode::kDatasetInvalid,
      fmt::format("{}: is an LMDB, but not one that headrace pack wrote, or its meta record is damaged ({})",
                  where, error.what()));
}

}  // namespace headrace::server::store
