#include "server/store/meta.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "server/store/field_json.h"

namespace headrace::server::store {
namespace {

using nlohmann::json;
using sample::SourceField;

std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::uint64_t from_hex(const json& value) {
  return std::stoull(value.get<std::string>(), nullptr, 16);
}

json sizes_json(const std::vector<decode::ImageSize>& sizes) {
  json list = json::array();
  for (const decode::ImageSize& size : sizes) list.push_back({size.height, size.width});
  return list;
}

/// Reads the keys of streamed sets, which databases of earlier versions do not have.
void read_streamed(const json& value, Meta& meta) {
  meta.streamed = value.value("streamed", false);
  if (!meta.streamed) return;
  meta.content_hash = from_hex(value.at("content_hash"));
  for (const json& size : value.at("sizes"))
    meta.sizes.push_back({size.at(1).get<std::int32_t>(), size.at(0).get<std::int32_t>()});
  if (meta.sizes.size() != meta.fields.size())
    throw std::invalid_argument("`sizes` must have one entry for each field");
}

/// "image: pixels x1, 3 channels; boxes: ragged float32 [4]"
std::string described(const std::vector<SourceField>& fields) {
  std::vector<std::string> all;
  for (const SourceField& field : fields) {
    const json as = to_json(field);
    all.push_back(fmt::format(
        "{}: {}{} {}", field.name, field.mask ? "mask " : "", as.at("content").get<std::string>(),
        field.is_image() ? fmt::format("x{}, {} channels", field.scale, field.channels)
                         : fmt::format("{} {}", headrace::name_of(field.dtype), as.at("shape").dump())));
  }
  return fmt::format("{}", fmt::join(all, "; "));
}

/// Throws a std::exception for missing, ill-typed or invalid values.
Meta read(const json& value) {
  Meta meta;
  const auto refuse = [](const char* what) { throw std::invalid_argument(what); };
  meta.complete = value.at("complete").get<bool>();
  meta.count = value.at("count").get<std::uint64_t>();
  for (const json& entry : value.at("fields")) {
    auto field = field_from_json(entry);
    if (!field) refuse(field.error().message.c_str());
    meta.fields.push_back(std::move(*field));
  }
  read_streamed(value, meta);
  if (meta.fields.empty() || (meta.count == 0 && (meta.complete || !meta.streamed)))
    refuse("it has no field, or no sample");
  meta.labelled = value.at("labelled").get<bool>();
  meta.classes = value.at("classes").get<std::vector<std::string>>();
  meta.source_fingerprint = from_hex(value.at("source_fingerprint"));
  const json& options = value.at("options");
  const auto storing = storing_from_name(options.at("store").get<std::string>());
  if (!storing) refuse("unknown store");
  meta.options.storing = *storing;
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
  constexpr std::array<std::string_view, 3> kNames = {"encoded", "decoded", "tiled"};
  return kNames.at(static_cast<std::size_t>(storing));
}

std::optional<Storing> storing_from_name(std::string_view name) {
  for (const Storing storing : {Storing::kEncoded, Storing::kDecoded, Storing::kTiled})
    if (name_of(storing) == name) return storing;
  return std::nullopt;
}

std::string to_string(const ResizeTo& resize) {
  if (resize.shorter > 0) return std::to_string(resize.shorter);
  return resize.wanted() ? fmt::format("{}x{}", resize.height, resize.width) : "none";
}

std::uint64_t Meta::fingerprint() const {
  const std::uint64_t given =
      streamed ? XXH3_64bits_withSeed(&content_hash, sizeof content_hash, source_fingerprint)
               : source_fingerprint;
  if (options.storing != Storing::kDecoded && !options.resize.wanted()) return given;
  // Tiled files have the same pixels as encoded ones.
  const Storing storing = options.storing == Storing::kTiled ? Storing::kEncoded : options.storing;
  const std::string how = fmt::format("{} {} {}", name_of(storing), to_string(options.resize), algorithm);
  return XXH3_64bits_withSeed(how.data(), how.size(), given);
}

std::string Meta::difference(const Meta& other) const {
  std::vector<std::string> all;
  const auto compare = [&all](std::string_view what, std::string_view mine, std::string_view asked) {
    if (mine != asked) all.push_back(fmt::format("{}: expected {}, found {}", what, asked, mine));
  };
  const auto number = [](std::uint64_t value) { return value > 0 ? std::to_string(value) : "unknown"; };
  // A set whose size is not known in advance may be complete already.
  if (other.count > 0 || !complete) compare("number of samples", number(count), number(other.count));
  if (streamed || other.streamed) {
    compare("origin", streamed ? "another program" : "a source",
            other.streamed ? "another program" : "a source");
    compare("list of fields", described(fields), described(other.fields));
    if (source_fingerprint != other.source_fingerprint && all.empty())
      all.emplace_back("its classes or its source fingerprint differ from the requested ones");
  } else {
    compare("source's fingerprint", hex(source_fingerprint), hex(other.source_fingerprint));
  }
  compare("store", name_of(options.storing), name_of(other.options.storing));
  compare("compression", name_of(options.compression), name_of(other.options.compression));
  compare("resize", to_string(options.resize), to_string(other.options.resize));
  compare("packing algorithm", std::to_string(algorithm), std::to_string(other.algorithm));
  return fmt::format("{}", fmt::join(all, "; "));
}

std::string Meta::to_json() const {
  json list = json::array();
  for (const SourceField& field : fields) list.push_back(store::to_json(field));
  json value{{"headrace", "packed"},
             {"format", options.storing == Storing::kTiled ? kTiledFormat : kFormat},
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
  if (streamed) {
    value["streamed"] = true;
    value["content_hash"] = hex(content_hash);
    value["sizes"] = sizes_json(sizes);
  }
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Meta> Meta::from_json(std::string_view text, const std::string& where) try {
  const json value = parse_description(text);
  if (value.at("headrace").get<std::string>() != "packed")
    throw std::invalid_argument("the key `headrace` is not `packed`");
  if (const int format = value.at("format").get<int>(); format != kFormat && format != kTiledFormat)
    return fail(
        ErrorCode::kVersionMismatch,
        fmt::format("{}: expected a database of format {} or {}, found format {}; pack it again, or use the "
                    "version of Headrace that packed it",
                    where, kFormat, kTiledFormat, format));
  return read(value);
} catch (const std::bad_alloc&) {
  throw;  // says nothing about the record
} catch (const std::exception& error) {
  return fail(
      ErrorCode::kDatasetInvalid,
      fmt::format("{}: this LMDB was not written by headrace pack, or its meta record is damaged ({})", where,
                  error.what()));
}

}  // namespace headrace::server::store
