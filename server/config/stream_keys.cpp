// The keys of a stream.
#include "server/config/plan_keys.h"
#include "server/config/read.h"
#include "server/described/names.h"

namespace headrace::server::config {

using namespace described;

namespace {

const Words<Access>& words_of(Access) {
  static const Words<Access> all{{"read_write", Access::kReadWrite}, {"read_only", Access::kReadOnly}};
  return all;
}
const Words<Delivery>& words_of(Delivery) {
  static const Words<Delivery> all{{"broadcast", Delivery::kBroadcast}, {"shard", Delivery::kShard}};
  return all;
}
const Words<OnError>& words_of(OnError) {
  static const Words<OnError> all{{"replace", OnError::kReplace}, {"fail", OnError::kFail}};
  return all;
}
const Words<OnLag>& words_of(OnLag) {
  static const Words<OnLag> all{{"detach", OnLag::kDetach}, {"wait", OnLag::kWait}};
  return all;
}

}  // namespace

std::string_view name_of(Delivery delivery) {
  return word_of(words_of(delivery), delivery);
}
std::string_view name_of(OnError policy) {
  return word_of(words_of(policy), policy);
}
std::string_view name_of(OnLag policy) {
  return word_of(words_of(policy), policy);
}
std::string_view name_of(Access access) {
  return word_of(words_of(access), access);
}

Description<RingConfig> RingConfig::description() {
  using Self = RingConfig;
  return {
      "",
      "Shared memory that holds batches between the server and its clients.",
      {key("prefetch", &Self::prefetch, integer<std::uint32_t>(1, 1024), "Number of batches made ahead."),
       key("max_leases", &Self::max_leases, integer<std::uint32_t>(1, 64),
           "Batches that one client may hold. With `device: gpu` the default is 5: a client holds a batch "
           "until its copy to the device has ended."),
       key("max_clients", &Self::max_clients, integer<std::uint32_t>(1, 64),
           "Clients that may be attached at once."),
       key("data_access", &Self::data_access, word(words_of(Access())),
           "read_only: no client can change the batches that others read. read_write: clients can map the "
           "ring writable, which some GPUs need to pin it; the loader warns if it cannot pin the ring."),
       key("checksums", &Self::checksums, boolean(),
           "Clients compare each batch with a checksum (XXH3) that the server made of it. A batch that was "
           "damaged in memory is made again.")}};
}

Description<SharingConfig> SharingConfig::description() {
  using Self = SharingConfig;
  return {
      "",
      "How clients begin together (wait_for, wait_timeout) and, on a broadcast stream, stay together.",
      {without_default(key("max_lag", &Self::max_lag, integer<std::uint32_t>(1, 1024),
                           "Broadcast only. Distance in batches from the foremost client up to which a "
                           "client shares the ring's slots; beyond it, `on_lag` applies. Default and upper "
                           "limit: ring.prefetch.")),
       key("on_lag", &Self::on_lag, word(words_of(OnLag())),
           "Broadcast only. detach: the slow client gets batches of its own, which are built for it "
           "alone; wait: the others wait for it."),
       key("wait_for", &Self::wait_for, count(),
           "Number of clients that must call `next()` before the first batch is granted; clients of all "
           "streams that share rows count. After all have detached, the next clients wait again. For a "
           "feed: number of clients that must attach before the first batch; later clients do not wait."),
       key("wait_timeout", &Self::wait_timeout, duration(),
           "Only with `wait_for`. How long after the first client's call the server waits for the others. "
           "Then "
           "it begins without them."),
       key("patience", &Self::patience, duration(),
           "Only for `delivery: broadcast` with `on_lag: detach`. The longest total time for which a client "
           "that is ahead yields the workers to one that is too far behind to share rows. It yields only if "
           "decoding is the bottleneck and the total time of both falls. 0s: it never yields."),
       optional("window", &Self::window, bytes(),
                "Memory for decoded rows that others will need: clients that are behind, and streams over "
                "the same samples in the same order whose transforms begin alike. 0B: none. Default: an "
                "eighth of the free memory for all windows.")}};
}

namespace {

Codec<bool> residence() {
  auto out = word<bool>({{"gpu", true}});
  out.schema["x-hint"] =
      "leave it out, and batches come from the server's workers; the trainer chooses its GPU: "
      "Loader(device=\"cuda:0\")";
  return out;
}

/// It is replaced by what it stands for before anything is read: apply_extends().
Key<StreamConfig> extends() {
  return {.name = "extends",
          .schema =
              {{"type", "string"},
               {"description",
                "Another stream, whose keys this one inherits unless it sets them. The maps `output`, `ring` "
                "and `sharing` are merged key by key; other values are replaced as a whole. `shuffle` and "
                "`sampler` count as one key. An empty key (`mix:`) restores the default."}},
          .read = [](StreamConfig&, const Json&, const Reading&) {},
          .write = [](const StreamConfig&, Json&) {}};
}

}  // namespace

Description<StreamConfig> StreamConfig::description() {
  using Self = StreamConfig;
  Description<Self> out{
      "",
      "",
      {extends(),
       required("source", &Self::source, text(), "One of `sources`; needed unless `extends` gives it."),
       without_default(key("part", &Self::part, plain<std::string>({{"type", "string"}}),
                           "One of the source's parts; needed if and only if it has a split.")),
       key("shuffle", &Self::shuffle, boolean(), "Short for `sampler: shuffled` and `sampler: sequential`."),
       without_default(key("sampler", &Self::sampler, config::sampler())),
       key("seed", &Self::seed, described::seed(), "Seed of shuffling, sampling and random transforms."),
       key("batch_size", &Self::batch_size, integer<std::uint32_t>(1, 1'000'000), "Samples in a batch."),
       key("last", &Self::last,
           word<LastBatch>(
               {{"short", LastBatch::kShort}, {"pad", LastBatch::kPad}, {"drop", LastBatch::kDrop}}),
           "What the last, incomplete batch of an epoch becomes."),
       key("delivery", &Self::delivery, word(words_of(Delivery())),
           "broadcast: each client gets every batch; shard: the ranks of a group divide the epoch.")}};
  for (auto& each : plan_keys()) out.keys.push_back(within(&Self::plan, std::move(each)));
  for (auto& each : std::vector<Key<Self>>{
           without_default(key("residence", &Self::resident, residence(),
                               "gpu: a loader with a device uploads the dataset to it once and computes "
                               "batches there; the dataset must fit into its memory. Loaders without a "
                               "device get the same batches from the server.")),
           key("on_error", &Self::on_error, word(words_of(OnError())),
               "What the server does with a bad sample: deliver another one, or stop the stream."),
           key("max_bad", &Self::max_bad, fraction(),
               "The stream fails if more than this fraction of its distinct samples is bad."),
           without_default(key("ring", &Self::ring, object<RingConfig>())),
           without_default(key("sharing", &Self::sharing, object<SharingConfig>()))})
    out.keys.push_back(std::move(each));
  return out;
}

StreamConfig read_stream(const Json& value, const Reading& reading) {
  StreamConfig out;
  read_into(out, value, reading);
  if (const auto given = value.find("sampler"); given != value.end()) {
    const auto* samples = out.sampler ? std::get_if<ListSampler>(&*out.sampler) : nullptr;
    out.shuffle = samples != nullptr ? samples->shuffle : *given != "sequential";
  }
  const auto has = [&](const char* key) { return value.contains(Pointer(key)); };
  if (!has("/output/dtype") && normalizes(out.plan)) out.plan.chain.output.dtype = DType::kFloat32;
  // A device's client holds a batch until its copy has ended: with fewer leases, copies wait for one another.
  constexpr std::uint32_t kForDevices = 5;
  if (out.plan.on_device && !has("/ring/max_leases")) out.ring.max_leases = kForDevices;
  if (!has("/sharing/max_lag")) out.sharing.max_lag = out.ring.prefetch;
  return out;
}

Json canonical(const StreamConfig& stream) {
  const Json all = write(stream);
  Json out = Json::object();
  for (const char* key : {"transforms", "output", "max_pixels", "resize_passes", "warnings", "derive", "mix",
                          "fields", "seed", "shuffle", "part", "sampler"})
    if (const auto found = all.find(key); found != all.end() && !found->is_null()) out[key] = *found;
  return out;
}

}  // namespace headrace::server::config
