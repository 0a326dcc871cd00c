#include "server/assembly/assemble.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "clientlib/base/human.h"
#include "clientlib/ring/segment.h"
#include "server/assembly/open_sampler.h"
#include "server/assembly/open_source.h"
#include "server/assembly/residence.h"
#include "server/exec/engine.h"
#include "server/log/log.h"
#include "server/sampler/order.h"
#include "server/source/combine/choose_fields.h"
#include "server/source/formats/feed.h"

namespace headrace::server::assembly {
namespace {

/// Increase it whenever the same configuration and data would give different samples than before.
constexpr const char* kAlgorithmVersion = "2";

using SourcePtr = std::shared_ptr<const source::Source>;

/// Prepends `where` to the message and keeps the code.
Error at(const std::string& where, const Error& error) {
  return {error.code, fmt::format("{}: {}", where, error.message)};
}

std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

Fingerprint fingerprint(const source::Source& source, std::uint64_t sampler_content,
                        const config::StreamConfig& config, const exec::RowMixer* mixer) {
  nlohmann::json plan = config::canonical(config);
  if (mixer != nullptr) plan["mix"]["num_classes"] = mixer->label_field().shape[0];
  plan.erase("seed");  // fingerprinted separately, so that a mismatch can name the seed
  if (config.sampler) plan["sampler_content"] = hex(sampler_content);
  const std::string text = plan.dump();
  return {hex(source.fingerprint()), hex(XXH3_64bits(text.data(), text.size())), std::to_string(config.seed),
          kAlgorithmVersion};
}

/// `batches`: of the whole dataset. No more are made ahead: the ring of a small set stays small.
publish::Ledger::Options ledger_options(const config::StreamConfig& config, std::uint64_t batches) {
  const auto prefetch = static_cast<std::uint32_t>(std::min<std::uint64_t>(config.ring.prefetch, batches));
  return {.lanes = config.ring.max_clients,
          .max_leases = config.ring.max_leases,
          .prefetch = prefetch,
          .broadcast = config.delivery == config::Delivery::kBroadcast,
          .max_lag = std::min(config.sharing.max_lag, prefetch),
          .detach = config.sharing.on_lag == config::OnLag::kDetach};
}

std::shared_ptr<io::ReadAhead> read_ahead(const config::StreamConfig& config,
                                          const publish::Ledger::Options& ledger, const SourcePtr& source,
                                          const Reads& reads) {
  if (!reads.pool) return nullptr;
  // Besides the prefetched samples: the batches that are being filled, and the next batch of each client,
  // which is expected however large it is.
  const std::uint64_t batches = publish::Ledger::slots_needed(ledger) + config.ring.max_clients;
  return std::make_shared<io::ReadAhead>(
      reads.pool, source,
      io::ReadAhead::Options{.ahead = reads.config->read_ahead,
                             .samples = reads.config->read_ahead + batches * config.batch_size,
                             .bytes = reads.config->memory});
}

exec::OnError on_error(const config::StreamConfig& config) {
  return config.on_error == config::OnError::kFail ? exec::OnError::kFail : exec::OnError::kReplace;
}

/// The place of the transform that plan_fields() reports: the last one of the shortest chain with the same
/// error. The stream's place if the error concerns all transforms.
const std::string& place_of(const Error& error, const config::StreamConfig& config,
                            const source::Source& source) {
  transform::StreamPlan shorter = config.plan;
  const auto& all = config.plan.chain.transforms;
  for (std::size_t count = 0; count <= all.size() && count <= config.places.transforms.size(); ++count) {
    shorter.chain.transforms.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
    shorter.only.assign(config.plan.only.begin(),
                        config.plan.only.begin() + static_cast<std::ptrdiff_t>(count));
    const auto fields = exec::plan_fields(source, shorter, config.batch_size);
    if (fields || fields.error().message != error.message) continue;
    return count == 0 ? config.places.stream : config.places.transforms[count - 1];
  }
  return config.places.stream;
}

/// Adds a stream to `out` and, with `residence: gpu`, its upload stream.
Result<void> assemble_stream(const std::string& name, const config::StreamConfig& config,
                             const SourcePtr& source, Caches& caches, const Reads& reads, Assembly& out,
                             std::vector<Sharer>& sharers) {
  const auto wrong = [&name](const std::string& place, const Error& error) {
    return fail(at(fmt::format("{}{}stream `{}`", place, place.empty() ? "" : ": ", name), error));
  };
  const std::string& here = config.places.stream;
  const auto* supplied = dynamic_cast<const source::Supplied*>(source.get());
  const auto sampler = open_sampler(config, *source);
  if (!sampler) return wrong(here, at("sampler", sampler.error()));
  auto fields = exec::plan_fields(*source, config.plan, config.batch_size, (*sampler)->repeats());
  if (!fields) return wrong(place_of(fields.error(), config, *source), fields.error());
  std::optional<ResidentStream> resident;
  if (config.resident) {
    auto made = resident_stream(name, config, *source, *fields);
    if (!made) return wrong(here, made.error());
    resident = std::move(*made);
  }
  const auto& own = source->fields();
  const bool images = std::any_of(own.begin(), own.end(), [](const auto& field) { return field.is_image(); });
  if (!images && !config.plan.chain.transforms.empty())
    return wrong(
        here, {ErrorCode::kConfigInvalid, "the source has no images to transform; leave `transforms` out"});
  if (config.plan.on_device && std::none_of(fields->begin(), fields->end(),
                                            [](const exec::FieldPlan& field) { return field.on_device; }))
    return wrong(here,
                 {ErrorCode::kConfigInvalid,
                  "the stream has no image field that the device could compute; leave `device: gpu` out"});
  const auto decoded =
      supplied ? Result<cache::SampleCaches>() : caches.decoded(config.source, *source, *fields);
  if (!decoded) return wrong(here, decoded.error());
  std::shared_ptr<const exec::RowMixer> mixer;
  if (config.plan.mix) {
    auto made = exec::RowMixer::make(*config.plan.mix, *fields, *source, config.plan.chain.output.layout);
    if (!made) return wrong(here, made.error());
    mixer = std::move(*made);
  }
  if (const auto lost = source->fault()) return wrong(here, *lost);
  const std::uint64_t samples = (*sampler)->size();
  if (config.last == LastBatch::kDrop && samples < config.batch_size)
    return wrong(config.places.batch_size,
                 {ErrorCode::kConfigInvalid, sampler::no_batch(samples, config.batch_size, 1)});
  source::FieldSet used;
  for (const exec::FieldPlan& plan : *fields) used.add(plan.source_field);
  source->will_read(used);
  const SourcePtr reading = source::choose_fields(source, used);
  exec::StreamSetup setup;
  if (const auto* fed = dynamic_cast<const source::Fed*>(source.get())) setup.feed = fed->feed();
  const std::uint64_t whole = samples / config.batch_size;
  const bool rest = config.last != LastBatch::kDrop && samples % config.batch_size != 0;
  // A feed may send more batches than its epoch has before they are read.
  setup.ledger = ledger_options(config, setup.feed ? config.ring.prefetch : whole + (rest ? 1 : 0));
  const exec::SampleOptions options{.stream = name,
                                    .seed = config.seed,
                                    .sampler = *sampler,
                                    .on_error = supplied ? exec::OnError::kMark : on_error(config),
                                    .max_bad = config.max_bad,
                                    .decoded = *decoded,
                                    .mixer = std::move(mixer),
                                    .read_ahead = read_ahead(config, setup.ledger, reading, reads)};
  const auto maker = std::make_shared<exec::SampleMaker>(reading, std::move(*fields), options);
  setup.maker = maker;
  setup.info = {
      .name = name,
      .delivery = config.delivery == config::Delivery::kShard ? Delivery::kShard : Delivery::kBroadcast,
      .samples = samples,
      .batch_size = config.batch_size,
      .last = config.last,
      .shuffle = config.shuffle,
      .fields = setup.maker->fields(),
      .classes = source->class_names(),
      .fingerprint =
          fingerprint(*source, supplied ? supplied->about().sampler_content : (*sampler)->content(), config,
                      options.mixer.get()),
      .on_device = setup.maker->on_device()};
  setup.data_access = config.ring.data_access == config::Access::kReadOnly ? ring::ClientAccess::kReadOnly
                                                                           : ring::ClientAccess::kReadWrite;
  setup.checksums = config.ring.checksums;
  setup.info.live = setup.feed != nullptr;
  setup.wait_for = config.sharing.wait_for;
  setup.wait_timeout = config.sharing.wait_timeout;
  setup.patience = config.sharing.patience;
  if (resident) setup.info.residence = resident->residence;
  if (reads.pool) out.read_ahead_bytes += reads.config->memory;
  if (setup.feed) out.other_bytes += setup.feed->slot_bytes() * setup.feed->options().slots;
  out.streams.push_back(std::move(setup));
  if (!resident) {
    sharers.push_back({name, &config, maker});
    return {};
  }
  const std::size_t here_in = out.streams.size() - 1;
  std::vector<Sharer> none;  // an upload reads each row once
  auto upload = assemble_stream(resident->name, resident->config, source, caches, reads, out, none);
  if (upload) out.streams[here_in].info.residence->plan = out.streams.back().info.fingerprint.plan;
  return upload;
}

/// The bytes of all rings with all clients attached.
std::uint64_t most_ring_bytes(const Assembly& assembly) {
  std::uint64_t sum = 0;
  for (const exec::StreamSetup& setup : assembly.streams)
    if (const auto ring = ring_size(setup)) sum += ring->most();
  return sum;
}

/// Bytes of memory that neither rings nor caches nor prefetched samples need.
std::uint64_t memory_left(const Assembly& assembly) {
  const std::uint64_t needed = most_ring_bytes(assembly) + bytes_beside_rings(assembly);
  const std::uint64_t all = ring::memory_headroom().bytes;
  return all - std::min(all, needed);
}

/// Gives all streams that share rows the same gate. Returns an error for each stream whose wait_for exceeds
/// the clients that can attach.
std::vector<Error> add_gates(const config::Config& config, Assembly& out) {
  std::vector<Error> wrong;
  std::set<std::string> said;
  for (exec::StreamSetup& setup : out.streams) {
    const auto group = std::find_if(out.sharing.begin(), out.sharing.end(),
                                    [&](const SharingGroup& each) { return each.has(setup.info.name); });
    std::uint32_t clients = setup.ledger.lanes;
    std::string why;
    if (group != out.sharing.end() && group->gate) {
      setup.gate = group->gate;
      clients = 0;
      for (const exec::StreamSetup& other : out.streams)
        if (group->has(other.info.name)) clients += other.ledger.lanes;
      why = fmt::format(" to {}, which share rows", fmt::join(group->streams, ", "));
    } else if (config.streams.size() > 1) {
      why = ": others do not count, because this stream shares rows with none (`headrace check` says why)";
    }
    if (setup.wait_for <= clients) continue;
    const auto stream = config.streams.find(setup.info.name);
    const std::string place = stream == config.streams.end() ? "" : stream->second.places.wait_for;
    std::string what = fmt::format(
        "{} is more than the {} client{} that can attach{}. Lower it, or raise "
        "ring.max_clients",
        setup.wait_for, clients, clients == 1 ? "" : "s", why);
    if (!said.insert(place + what).second) continue;  // streams that extend one inherit value and place
    wrong.push_back(
        {ErrorCode::kConfigInvalid, fmt::format("{}{}streams.{}.sharing.wait_for: {}", place,
                                                place.empty() ? "" : ": ", setup.info.name, what)});
  }
  return wrong;
}

/// One error with all messages.
Error joined(std::vector<Error> errors) {
  for (std::size_t i = 1; i < errors.size(); ++i) errors.front().message += "\n" + errors[i].message;
  return std::move(errors.front());
}

}  // namespace

Result<Assembly> assemble(const config::Config& config, std::stop_token stop,
                          const std::shared_ptr<const source::Supplied>& supplied) {
  const auto uploads =
      static_cast<std::size_t>(std::count_if(config.streams.begin(), config.streams.end(),
                                             [](const auto& stream) { return stream.second.resident; }));
  if (config.streams.size() + uploads > exec::Engine::kMaxStreams)
    return fail(
        ErrorCode::kConfigInvalid,
        fmt::format(
            "streams: expected at most {}, found {}: {} configured, and {} upload streams (the server adds "
            "one for each stream with `residence: gpu`); divide the streams among several servers",
            exec::Engine::kMaxStreams, config.streams.size() + uploads, config.streams.size(), uploads));
  Caches caches(config);
  Sources sources(config.sources, &caches, std::move(stop));
  Assembly out;
  std::vector<Sharer> sharers;
  // Report all errors at once, and each one once: a source made of one that does not open does not open
  // either.
  std::vector<Error> wrong;
  const auto note = [&wrong](Error error) {
    if (std::none_of(wrong.begin(), wrong.end(), [&error](const Error& known) {
          return error.message.find(known.message) != std::string::npos ||
                 known.message.find(error.message) != std::string::npos;
        }))
      wrong.push_back(std::move(error));
  };
  for (const auto& [name, stream] : config.streams) {
    auto source = supplied ? Result<SourcePtr>(supplied) : sources.open(stream.source, stream.part);
    if (!source) {
      note(at(fmt::format("source `{}`", stream.source), source.error()));
      continue;
    }
    const Reads reads = sources.reads(stream.source);
    if (auto added = assemble_stream(name, stream, *source, caches, reads, out, sharers); !added)
      note(added.error());
  }
  if (!wrong.empty()) return fail(joined(std::move(wrong)));
  for (const auto& [name, source] : config.sources)
    if (!sources.is_open(name)) out.unused.push_back(name);
  for (const auto& [name, source] : config.sources)
    if (source.cache.decoded > 0 && sources.is_open(name) && !caches.in_use(name))
      log::warn(
          "source `{}`, cache.decoded: no stream uses this cache: streams reach the source through one "
          "that has a decoded cache of its own, or through a zip, which needs one. Set it there, or remove "
          "it",
          name);
  out.caches = caches.all();
  out.other_bytes += caches.table_bytes();
  if (std::any_of(out.caches.memory.begin(), out.caches.memory.end(),
                  [](const CacheUse& use) { return use.tiler != nullptr; }))
    out.other_bytes += std::max(1U, config.server.threads - 1) * cache::IdleTiler::kMostBytes;
  out.remotes = sources.remotes();
  out.sharing = share_rows(sharers, memory_left(out));
  if (wrong = add_gates(config, out); !wrong.empty()) return fail(joined(std::move(wrong)));
  return out;
}

std::uint64_t window_bytes(const Assembly& assembly) {
  std::uint64_t sum = 0;
  for (const SharingGroup& group : assembly.sharing)
    if (group.window) sum += group.window->budget();
  return sum;
}

std::uint64_t cache_bytes(const Assembly& assembly) {
  std::uint64_t sum = 0;
  for (const CacheUse& use : assembly.caches.memory) sum += use.arena->budget();
  return sum;
}

std::uint64_t bytes_beside_rings(const Assembly& assembly) {
  return window_bytes(assembly) + cache_bytes(assembly) + assembly.read_ahead_bytes + assembly.other_bytes;
}

Result<void> check_memory(const Assembly& assembly, std::uint64_t rings,
                          const ring::MemoryHeadroom& headroom) {
  if (rings + bytes_beside_rings(assembly) <= headroom.bytes) return {};
  if (rings > headroom.bytes)
    return fail(ErrorCode::kNotEnoughMemory,
                fmt::format("the rings need {} with one client each, {} are available ({}): lower "
                            "batch_size, ring.prefetch or ring.max_leases",
                            human_bytes(rings), human_bytes(headroom.bytes), headroom.limited_by));
  std::vector<std::string> lower, parts;
  const auto part = [&](const char* what, std::uint64_t bytes) {
    if (bytes > 0) parts.push_back(fmt::format("{} {}", what, human_bytes(bytes)));
  };
  part("caches", cache_bytes(assembly));
  part("windows", window_bytes(assembly));
  part("reading ahead", assembly.read_ahead_bytes);
  part("tables, tiles and feeds", assembly.other_bytes);
  for (const CacheUse& use : assembly.caches.memory) lower.push_back(use.arena->name());
  for (const SharingGroup& group : assembly.sharing)
    if (group.window)
      lower.push_back(fmt::format("sharing.window of stream{} `{}` ({})",
                                  group.streams.size() == 1 ? "" : "s", fmt::join(group.streams, "`, `"),
                                  human_bytes(group.window->budget())));
  if (assembly.read_ahead_bytes > 0) lower.emplace_back("io.memory of the sources that are read ahead");
  return fail(ErrorCode::kNotEnoughMemory,
              fmt::format("{} may be needed beside the rings ({}), and {} are available ({}): lower {}",
                          human_bytes(bytes_beside_rings(assembly)), fmt::join(parts, ", "),
                          human_bytes(headroom.bytes - std::min(rings, headroom.bytes)), headroom.limited_by,
                          fmt::join(lower, "; ")));
}

std::string short_of_memory(const Assembly& assembly, const ring::MemoryHeadroom& headroom) {
  const std::uint64_t needed = most_ring_bytes(assembly) + bytes_beside_rings(assembly);
  if (needed <= headroom.bytes) return {};
  return fmt::format(
      "with all clients attached and all caches full, {} are needed, and {} are available "
      "({}): "
      "further clients would be refused. Lower ring.max_clients, batch_size, ring.max_leases, caches or "
      "sharing.window",
      human_bytes(needed), human_bytes(headroom.bytes), headroom.limited_by);
}

Result<RingSize> ring_size(const exec::StreamSetup& setup) {
  const auto bytes = [&](std::uint32_t clients) {
    return ring::RingWriter::bytes_needed(exec::ring_options(setup, clients));
  };
  const auto first = bytes(1);
  const auto second = bytes(2);
  if (!second) return fail(second.error());
  const std::uint32_t slots = publish::Ledger::slots_needed(setup.ledger, 1);
  return RingSize{.clients = setup.ledger.lanes,
                  .first_slots = slots,
                  .further_slots = publish::Ledger::slots_needed(setup.ledger, 2) - slots,
                  .first_bytes = *first,
                  .further_bytes = *second - *first};
}

std::string to_string(const RingSize& size) {
  std::string text = fmt::format("{} slots, {}", size.first_slots, human_bytes(size.first_bytes));
  if (size.clients > 1)
    text += fmt::format("; {} slots, {} more for each further client, up to {} clients", size.further_slots,
                        human_bytes(size.further_bytes), size.clients);
  return text;
}

}  // namespace headrace::server::assembly
