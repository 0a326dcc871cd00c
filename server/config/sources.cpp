#include "server/config/sources.h"

#include "server/config/network.h"
#include "server/described/described.h"

namespace headrace::server::config {

using namespace described;

Description<CacheConfig> CacheConfig::description() {
  using Self = CacheConfig;
  return {
      "",
      "Memory of the server that keeps samples until it is full; shared by all streams of the source.",
      {without_default(key("encoded", &Self::encoded, bytes(),
                           "Files as they were read. Of sources that read files or shards.")),
       without_default(key("decoded", &Self::decoded, bytes(),
                           "8-bit pixels after decoding and the transforms before the first random one.")),
       key("tile", &Self::tile, boolean(),
           "Of `encoded`, where a stream crops: JPEGs in it are rewritten without loss, by workers that have "
           "nothing else to do, so that a crop is decoded from the tiles that it touches.")}};
}

Description<IoConfig::DiskCache> IoConfig::DiskCache::description() {
  return {"",
          "A folder on a local disk that keeps what was read, until it is full. Not for lmdb and npy.",
          {required("path", &DiskCache::path, described::path(),
                    "A folder of its own; servers of one machine share it."),
           required("size", &DiskCache::size, bytes(), "At most so much, of all datasets in it together.")}};
}

Description<IoConfig> IoConfig::description() {
  using Self = IoConfig;
  return {"",
          "Samples are read ahead, by threads that do nothing else: for network mounts and slow disks. "
          "Without it "
          "the workers read, except of URLs, which are always read ahead.",
          {key("threads", &Self::threads, integer<unsigned>(1, 1024),
               "Reads under way at once, for all streams over this source."),
           without_default(
               key("read_ahead", &Self::read_ahead, integer<std::uint64_t>(0, 1'000'000),
                   "Samples that each stream has read beyond the batches that are being filled. 0: the "
                   "workers read. Default: 4 per thread.")),
           key("memory", &Self::memory, bytes(),
               "Of samples that are read and not used yet, at most, for each stream."),
           key("delay", &Self::delay, duration(),
               "Each read takes so much longer: what would a network mount do to me?"),
           optional("disk_cache", &Self::disk_cache, object<DiskCache>())}};
}

namespace {

Description<remote::S3Config> s3_keys() {
  using Self = remote::S3Config;
  auto endpoint = without_default(key("endpoint", &Self::endpoint,
                                      text("^https?://[^/]", "a URL such as https://minio.example:9000"),
                                      "Default: AWS_ENDPOINT_URL, else AWS."));
  endpoint.schema["x-secret"] = true;
  return {
      "",
      "Options of s3:// paths. The keys are read only from the environment: AWS_ACCESS_KEY_ID, "
      "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN. Without them requests are not signed.",
      {std::move(endpoint),
       without_default(key("region", &Self::region,
                           text("^[A-Za-z0-9-]{1,40}$", "the name of a region, such as eu-central-1"),
                           "Default: AWS_REGION, AWS_DEFAULT_REGION, else us-east-1.")),
       key("anonymous", &Self::anonymous, boolean(), "Requests are not signed, also if there are keys.")}};
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

const source::SourceType& type_of(const Json& source) {
  return *source::find_source_type(source.at("type").get_ref<const std::string&>());
}

SourceConfig read_source(const Json& value, const std::filesystem::path& folder) {
  SourceConfig out;
  out.type = &type_of(value);
  out.options = out.type->read(value, folder);
  Common common;
  for (const auto& key : common_keys(out.type->traits))
    if (const auto found = value.find(key.name); found != value.end()) key.read(common, *found, folder);
  out.cache = common.cache;
  out.io = std::move(common.io);
  out.split = std::move(common.split);
  out.network = read_network(value, folder);
  if (!out.io && out.network && out.network->by_sample) out.io = IoConfig{};
  if (out.io && !value.contains(Json::json_pointer("/io/read_ahead")))
    out.io->read_ahead = std::uint64_t{4} * out.io->threads;
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
