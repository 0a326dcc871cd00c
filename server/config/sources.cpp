#include "server/config/sources.h"

#include <nlohmann/json.hpp>

#include "server/config/config.h"
#include "server/config/network.h"
#include "server/described/units.h"

namespace headrace::server::config {
namespace {

using nlohmann::json;

std::vector<std::string> texts(const json& value, const char* key) {
  return value.value(key, std::vector<std::string>{});
}

WebDatasetSource read_webdataset(const json& value, const std::filesystem::path& folder) {
  WebDatasetSource out;
  const json& path = value.at("path");
  for (const json& one : path.is_array() ? path : json::array({path}))
    out.paths.push_back(absolute(folder, one.get<std::string>()).string());
  if (value.contains("image")) {
    out.images = texts(value, "image");
    for (std::string& extension : out.images)
      for (char& c : extension)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  out.label = value.value("label", out.label);
  out.classes = texts(value, "classes");
  out.index_cache = value.value("index_cache", "on") == "on";
  return out;
}

NpySource read_npy(const json& value, const std::filesystem::path& folder) {
  NpySource out;
  const auto fields = value.value("fields", std::map<std::string, std::string>{});
  if (value.contains("path")) {
    out.path = absolute(folder, value["path"].get<std::string>());
    out.arrays = fields;
  } else {
    for (const auto& [field, path] : fields) out.files[field] = absolute(folder, path);
  }
  if (value.contains("images")) out.images = texts(value, "images");
  out.classes = texts(value, "classes");
  return out;
}

source::FeedOptions read_feed(const json& value) {
  source::FeedOptions out;
  out.samples = value.at("samples").get<std::uint64_t>();
  out.batch_size = value.at("batch_size").get<std::uint32_t>();
  out.slots = value.value("slots", out.slots);
  for (const json& field : value.at("fields"))
    out.fields.push_back(
        {.name = field.at("name").get<std::string>(),
         .dtype = dtype_from_name(field.at("dtype").get<std::string>()).value_or(DType::kUInt8),
         .shape = field.value("shape", std::vector<std::int64_t>{}),
         .most_values = field.value("most_values", std::uint64_t{0})});
  return out;
}

IoConfig read_io(const json& value, const std::filesystem::path& folder) {
  IoConfig out;
  out.threads = value.value("threads", out.threads);
  out.read_ahead = value.value("read_ahead", std::uint64_t{4} * out.threads);
  out.memory = parse_size(value.value("memory", std::string())).value_or(out.memory);
  out.delay = parse_duration(value.value("delay", std::string())).value_or(out.delay);
  if (const auto cache = value.find("disk_cache"); cache != value.end())
    out.disk_cache = IoConfig::DiskCache{absolute(folder, cache->at("path").get<std::string>()),
                                         parse_size(cache->at("size").get<std::string>()).value_or(0)};
  return out;
}

source::ManifestField read_manifest_field(const json& value) {
  using Kind = source::ManifestKind;
  static const std::map<std::string, Kind> kKinds{{"image", Kind::kImage},       {"mask", Kind::kMask},
                                                  {"class", Kind::kClass},       {"value", Kind::kValue},
                                                  {"ragged", Kind::kRagged},     {"text", Kind::kText},
                                                  {"multi_hot", Kind::kMultiHot}};
  source::ManifestField out;
  out.kind = kKinds.at(value.value("kind", std::string("image")));
  out.column = value.value("column", out.column);
  out.dtype = dtype_from_name(value.value("dtype", std::string("float32"))).value_or(out.dtype);
  out.shape = value.value("shape", out.shape);
  out.classes = value.value("classes", out.classes);
  out.scale = value.value("scale", out.scale);
  return out;
}

}  // namespace

std::vector<SourceRef> SourceConfig::made_of() const {
  return std::visit(
      [](const auto& source) -> std::vector<SourceRef> {
        if constexpr (requires { source.of; }) return source.of;
        return {};
      },
      kind);
}

SourceConfig read_source(const json& value, const std::filesystem::path& folder) {
  SourceConfig out;
  const auto& type = value.at("type").get_ref<const std::string&>();
  const auto path = [&](const char* key) { return absolute(folder, value.at(key).get<std::string>()); };
  if (type == "synthetic") {
    out.kind =
        SyntheticSource{value.at("count").get<std::uint64_t>(), value.at("bytes").get<std::uint64_t>()};
  } else if (type == "idx") {
    out.kind = IdxSource{path("images"), path("labels"), texts(value, "classes")};
  } else if (type == "cifar") {
    out.kind = CifarSource{path("path"), value.value("set", "train") == "test",
                           value.value("labels", "fine") == "coarse"};
  } else if (type == "manifest") {
    source::ManifestOptions options{.path = path("path"), .root = {}, .fields = {}};
    if (value.contains("root")) options.root = path("root");
    const json fields = value.value("fields", json::object());
    for (const auto& [name, field] : fields.items()) options.fields[name] = read_manifest_field(field);
    out.kind = ManifestSource{std::move(options)};
  } else if (type == "paired_folders") {
    PairedFoldersSource paired;
    for (const auto& [field, options] : value.at("fields").items()) {
      const bool brief = options.is_string();
      source::PairedFolder& one = paired.folders[field];
      one.path = absolute(folder, (brief ? options : options.at("path")).get<std::string>());
      if (brief) continue;
      one.names = options.value("names", one.names);
      one.scale = options.value("scale", one.scale);
      one.mask = options.value("mask", one.mask);
    }
    out.kind = std::move(paired);
  } else if (type == "lmdb") {
    out.kind = LmdbSource{path("path"), value.value("verify", false)};
  } else if (type == "webdataset") {
    out.kind = read_webdataset(value, folder);
  } else if (type == "feed") {
    out.kind = read_feed(value);
  } else if (type == "npy") {
    out.kind = read_npy(value, folder);
  } else if (type == "concat") {
    out.kind = ConcatSource{read_refs(value.at("of"))};
  } else if (type == "subset") {
    out.kind = read_subset(value, folder);
  } else if (type == "repeat") {
    out.kind = RepeatSource{read_refs(value.at("of")), value.at("times").get<std::uint64_t>()};
  } else if (type == "zip") {
    out.kind = read_zip(value);
  } else if (type == "relabel") {
    out.kind = read_relabel(value);
  } else {
    out.kind = ImageFolderSource{path("path")};
  }
  out.network = read_network(value, folder);
  if (value.contains("io") || (out.network && out.network->by_sample))
    out.io = read_io(value.value("io", json::object()), folder);
  if (value.contains("split")) out.split = read_split(value["split"], folder);
  const json cache = value.value("cache", json::object());
  out.cache.encoded = parse_size(cache.value("encoded", "")).value_or(0);
  out.cache.decoded = parse_size(cache.value("decoded", "")).value_or(0);
  out.cache.tile = cache.value("tile", true);
  return out;
}

}  // namespace headrace::server::config
