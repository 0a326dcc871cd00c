#include "server/config/sources.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/described/described.h"
#include "server/remote/url.h"

namespace headrace::server::config {

using namespace described;

Description<CacheConfig> CacheConfig::description() {
  using Self = CacheConfig;
  const auto budget = checked<std::uint64_t>(
      bytes(), [](std::uint64_t size) { return size > 0 ? "" : "is no room for anything; leave it out"; });
  return {
      "",
      "A cache in the server's memory, filled once; all streams of the source share it.",
      {without_default(
           key("encoded", &Self::encoded, budget,
               "Budget for files as they were read. Only for sources that read files or shards.")),
       without_default(
           key("decoded", &Self::decoded, budget,
               "Budget for 8-bit pixels after decoding and the transforms before the first random one.")),
       key("tile", &Self::tile, boolean(),
           "For `encoded`, if a stream crops: idle workers rewrite the JPEGs without loss, so that a crop is "
           "decoded only from the tiles that it touches.")},
      [](const Self&, const Json& map, const Reading& reading) {
        if (map.contains("tile") && !map.contains("encoded"))
          reading.wrong_key(
              "tile", "it is the cache `encoded` that keeps JPEGs; give it a budget, or leave this out");
      }};
}

namespace {

/// A size for data that is read ahead or kept.
Codec<std::uint64_t> room() {
  constexpr std::uint64_t kLeast = 1'000'000;
  return checked<std::uint64_t>(
      bytes(), [](std::uint64_t size) { return size < kLeast ? "is not between 1MB and 9007TB" : ""; });
}

/// A delay of each read; working storage never takes longer.
Codec<std::chrono::milliseconds> delay() {
  return checked<std::chrono::milliseconds>(duration(), [](std::chrono::milliseconds time) {
    return time > std::chrono::seconds{10} ? "is too long for each read; at most 10s" : "";
  });
}

}  // namespace

Description<IoConfig::DiskCache> IoConfig::DiskCache::description() {
  return {"",
          "A folder on a local disk that keeps what was read, up to `size`. Not for lmdb and npy.",
          {required("path", &DiskCache::path, described::path(),
                    "A folder for this purpose alone; all servers of a machine may share it."),
           required("size", &DiskCache::size, room(), "Limit for all datasets in the folder together.")}};
}

Description<IoConfig> IoConfig::description() {
  using Self = IoConfig;
  return {
      "",
      "I/O threads read samples ahead: for network mounts and slow disks. Without `io` the workers read. "
      "Sources that read samples from URLs have it by default.",
      {key("threads", &Self::threads, integer<unsigned>(1, 1024),
           "Reads under way at once, for all streams over this source."),
       without_default(key("read_ahead", &Self::read_ahead, integer<std::uint64_t>(0, 1'000'000),
                           "Samples read ahead for each stream, in addition to the batches that are being "
                           "filled. 0: the workers read. Default: 4 per thread.")),
       key("memory", &Self::memory, room(),
           "Limit, for each stream, for samples that were read but not used yet."),
       key("delay", &Self::delay, config::delay(),
           "Time that is added to each read, to simulate a network mount."),
       optional("disk_cache", &Self::disk_cache, object<DiskCache>())}};
}

namespace {

Description<remote::S3Config> s3_keys() {
  using Self = remote::S3Config;
  auto endpoint = without_default(key("endpoint", &Self::endpoint,
                                      text("^https?://[^/]", "a URL such as https://minio.example:9000"),
                                      "Default: AWS_ENDPOINT_URL, else AWS."));
  endpoint.schema["x-secret"] = true;
  return {"",
          "Options of s3:// paths. The keys are read only from the environment: AWS_ACCESS_KEY_ID, "
          "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN. Without them requests are not signed.",
          {std::move(endpoint),
           without_default(key("region", &Self::region,
                               text("^[A-Za-z0-9-]{1,40}$", "the name of a region, such as eu-central-1"),
                               "Default: AWS_REGION, AWS_DEFAULT_REGION, else us-east-1.")),
           key("anonymous", &Self::anonymous, boolean(), "Requests are not signed, even if there are keys.")},
          [](const Self& s3, const Json&, const Reading& reading) {
            if (s3.endpoint.find_first_of("@?#") != std::string::npos)
              reading.wrong(
                  "endpoint",
                  "has more than a scheme, a host, a port and a path (it is not shown); keys come from the "
                  "environment");
          }};
}

/// Keys that a type may have besides its own.
struct Common {
  CacheConfig cache;
  std::optional<IoConfig> io;
  std::optional<source::Split> split;
};

std::vector<Key<Common>> common_keys(const source::SourceTraits& traits) {
  auto cache = named("cache", object<CacheConfig>());
  cache.schema["minProperties"] = 1;
  std::vector<Key<Common>> out;
  if (traits.cache) out.push_back(without_default(key("cache", &Common::cache, cache)));
  if (traits.io) out.push_back(optional("io", &Common::io, named("io", object<IoConfig>())));
  if (traits.split) out.push_back(optional("split", &Common::split, source::split_codec()));
  return out;
}

}  // namespace

Description<NetworkConfig> NetworkConfig::description() {
  using Self = NetworkConfig;
  auto options = named("s3", object(s3_keys()));
  options.schema["minProperties"] = 1;
  options.schema["x-secret"] = true;
  return {
      "",
      "",
      {without_default(key("s3", &Self::s3, options)),
       without_default(key("tls_ca", &Self::tls_ca, described::path(),
                           "A file of certificates (PEM) of the authorities that are trusted for https://. "
                           "Default: the system's."))}};
}

namespace {

/// Why a source of this type cannot read this URL; empty: it can.
std::string refusal(const source::SourceTraits& traits, const std::string& url) {
  if (traits.refuse)
    if (auto why = traits.refuse(url); !why.empty()) return why;
  if (remote::is_s3(url) && remote::s3_name(url).bucket.empty())
    return fmt::format("\"{}\" names no bucket; write it as s3://bucket/key", url);
  if (remote::is_s3(url)) return {};
  const auto sound = remote::normalized(url);
  return sound ? "" : sound.error().message;
}

/// Whether a text begins like a URL. Not by std::regex, which recurses for each character of a long path.
bool names_scheme(std::string_view text) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+.-";
  constexpr std::size_t kFirst = 52;  // letters
  const auto end = text.find("://");
  if (end == std::string_view::npos || end == 0) return false;
  return kLetters.substr(0, kFirst).find(text[0]) != std::string_view::npos &&
         text.substr(0, end).find_first_not_of(kLetters) == std::string_view::npos;
}

/// How the URLs among `data` are read; none: there are no URLs. `whole`: `data` is complete.
std::optional<NetworkConfig> read_network(const Json& value, const std::vector<Location>& data,
                                          const source::SourceTraits& traits, bool whole,
                                          const Reading& reading) {
  bool any = false, s3 = false;
  for (const auto& [at, text] : data) {
    const Reading here(reading.folder(), at, reading.faults());
    if (remote::is_url(text)) {
      any = true;
      s3 = s3 || remote::is_s3(text);
      if (auto why = refusal(traits, text); !why.empty()) here.wrong("", std::move(why));
    } else if (names_scheme(text)) {
      here.wrong("", fmt::format("expected an http://, https:// or s3:// URL, found {}...",
                                 text.substr(0, text.find("://") + 3)));
    }
  }
  if (whole && value.contains("s3") && !s3)
    reading.wrong_key("s3", "no path of this source is an s3:// URL; leave it out");
  if (whole && value.contains("tls_ca") && !any)
    reading.wrong_key("tls_ca", "no path of this source is a URL; leave it out");
  NetworkConfig out;
  read_into(out, value, reading);
  if (!any) return std::nullopt;
  out.by_sample = traits.by_sample && traits.by_sample(value);
  return out;
}

bool is_within(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto relative = path.lexically_normal().lexically_relative((folder / "").lexically_normal());
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace

SourceConfig read_source(const Json& value, const Reading& reading) {
  SourceConfig out;
  out.type = source::find_source_type(value.at("type").get_ref<const std::string&>());
  const source::SourceTraits& traits = out.type->traits;
  const bool whole = reading.sound();
  std::vector<Location> data;
  out.options = out.type->read(value, reading.collecting(data));
  Common common;
  read_into(common, value, reading, {"", "", common_keys(traits)});
  out.cache = common.cache;
  out.io = std::move(common.io);
  out.split = std::move(common.split);
  out.network = read_network(value, data, traits, whole, reading);
  if (!out.io && out.network && out.network->by_sample) out.io = IoConfig{};
  if (out.io && !value.contains(Pointer("/io/read_ahead")))
    out.io->read_ahead = std::uint64_t{4} * out.io->threads;
  if (traits.in_memory != nullptr && value.contains(Pointer("/cache/encoded")))
    reading.wrong_key("cache/encoded", fmt::format("{}; leave this out", traits.in_memory));
  if (out.io && out.io->disk_cache)
    for (const Location& location : data)
      if (is_within(out.io->disk_cache->path, location.text))
        reading.wrong("io/disk_cache/path",
                      fmt::format("lies in the source's data, {}: give the cache a folder of its own",
                                  remote::shown(location.text)));
  if (traits.mapped && out.io && out.io->disk_cache)
    reading.wrong_key(
        "io/disk_cache",
        fmt::format("a source of type {} is one file or a few, which are mapped: copy them to the "
                    "local disk instead",
                    out.type->name));
  return out;
}

Schema source_schema() {
  Schema types = Schema::array();
  for (const source::SourceType& type : source::source_types()) {
    Schema schema = type.schema;
    Schema properties{{"type", {{"const", type.name}}}};
    properties.update(schema["properties"]);
    if (type.traits.network)
      for (const auto& key : description_of<NetworkConfig>().keys) properties[key.name] = key.schema;
    for (const auto& key : common_keys(type.traits)) properties[key.name] = key.schema;
    Schema required{"type"};
    for (const auto& name : schema.value("required", Schema::array())) required.push_back(name);
    schema["required"] = std::move(required);
    schema["properties"] = std::move(properties);
    types.push_back(std::move(schema));
  }
  return {{"type", "object"},
          {"x-expected", "a map with the key type"},
          {"oneOf", std::move(types)},
          {"x-name", "source"}};
}

}  // namespace headrace::server::config
