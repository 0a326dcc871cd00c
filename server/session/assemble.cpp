#include "server/session/assemble.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <xxhash.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/source/cifar.h"
#include "server/source/idx.h"
#include "server/source/image_folder.h"
#include "server/source/split.h"
#include "server/source/synthetic.h"

namespace headrace::server::session {
namespace {

/// Raised whenever the same configuration and data would give other samples than before.
constexpr const char* kAlgorithmVersion = "1";

using SourcePtr = std::shared_ptr<const source::Source>;

/// Keeps `error`'s code and says first where it happened.
Error at(const std::string& where, const Error& error) {
  return {error.code, fmt::format("{}: {}", where, error.message)};
}

Result<SourcePtr> open_source(const config::SourceConfig& config) {
  if (const auto* folder = std::get_if<config::ImageFolderSource>(&config.kind))
    return source::open_image_folder(folder->path);
  if (const auto* idx = std::get_if<config::IdxSource>(&config.kind))
    return source::open_idx({idx->images, idx->labels, idx->classes});
  if (const auto* cifar = std::get_if<config::CifarSource>(&config.kind))
    return source::open_cifar({cifar->path, cifar->test ? source::CifarSet::kTest : source::CifarSet::kTrain,
                               cifar->coarse ? source::CifarLabels::kCoarse : source::CifarLabels::kFine});
  const auto& synthetic = std::get<config::SyntheticSource>(config.kind);
  return source::make_synthetic(synthetic.count, synthetic.bytes);
}

source::Split split_of(const config::SplitConfig& config) {
  if (const auto* by = std::get_if<config::SplitFractions>(&config.by))
    return source::SplitFractions{by->parts, config.seed};
  if (const auto* by = std::get_if<config::SplitClasses>(&config.by)) return source::SplitClasses{by->parts};
  return source::SplitLists{std::get<config::SplitLists>(config.by).parts};
}

/// What a source offers to streams: itself, or its parts by name ("" is the whole).
Result<source::Parts> offers(const std::string& name, const config::SourceConfig& config) {
  auto whole = open_source(config);
  if (!whole) return tl::make_unexpected(whole.error());
  if (const std::string warning = (*whole)->warning(); !warning.empty())
    spdlog::warn("source `{}`: {}", name, warning);
  if (!config.split) return source::Parts{{"", *whole}};
  return source::split(*whole, split_of(*config.split));
}

std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

Fingerprint fingerprint(const source::Source& source, const config::StreamConfig& config) {
  nlohmann::json plan = config::canonical(config);
  plan.erase("seed");  // named apart, so that a mismatch can say that it is the seed
  const std::string text = plan.dump();
  return {hex(source.fingerprint()), hex(XXH3_64bits(text.data(), text.size())), std::to_string(config.seed),
          kAlgorithmVersion};
}

Result<exec::StreamSetup> assemble_stream(const std::string& name, const config::StreamConfig& config,
                                          const SourcePtr& source) {
  std::map<std::string, transform::Plan> plans;
  for (const source::SourceField& field : source->fields()) {
    if (field.content == source::Content::kValues) continue;
    transform::PlanConfig plan = config.plan;
    plan.channels = field.channels;
    plan.input = {field.height, field.width};
    auto compiled = transform::Plan::compile(plan);
    if (!compiled) return tl::make_unexpected(compiled.error());
    plans.emplace(field.name, std::move(*compiled));
  }
  const exec::SampleOptions options{
      .stream = name,
      .seed = config.seed,
      .shuffle = config.shuffle,
      .on_error = config.on_error == config::OnError::kFail ? exec::OnError::kFail : exec::OnError::kReplace,
      .max_bad = config.max_bad};
  exec::StreamSetup setup;
  setup.maker = std::make_shared<exec::SampleMaker>(source, std::move(plans), options);
  setup.info = {
      .name = name,
      .delivery = config.delivery == config::Delivery::kShard ? Delivery::kShard : Delivery::kBroadcast,
      .samples = source->size(),
      .batch_size = config.batch_size,
      .last = config.last,
      .shuffle = config.shuffle,
      .fields = setup.maker->fields(),
      .classes = source->class_names(),
      .fingerprint = fingerprint(*source, config)};
  setup.ledger = {.lanes = config.ring.max_clients,
                  .max_leases = config.ring.max_leases,
                  .prefetch = config.ring.prefetch,
                  .broadcast = config.delivery == config::Delivery::kBroadcast,
                  .max_lag = config.sharing.max_lag,
                  .detach = config.sharing.on_lag == config::OnLag::kDetach};
  setup.data_access = config.ring.data_access == config::Access::kReadOnly ? ring::ClientAccess::kReadOnly
                                                                           : ring::ClientAccess::kReadWrite;
  setup.wait_for = config.sharing.wait_for;
  setup.wait_timeout = config.sharing.wait_timeout;
  return setup;
}

}  // namespace

Result<std::vector<exec::StreamSetup>> assemble(const config::Config& config) {
  std::map<std::string, source::Parts> sources;
  std::vector<exec::StreamSetup> setups;
  for (const auto& [name, stream] : config.streams) {
    const config::SourceConfig& source_config = config.sources.at(stream.source);
    if (!sources.contains(stream.source)) {
      auto opened = offers(stream.source, source_config);
      if (!opened) return fail(at(fmt::format("source `{}`", stream.source), opened.error()));
      sources.emplace(stream.source, std::move(*opened));
    }
    auto setup = assemble_stream(name, stream, sources.at(stream.source).at(stream.part));
    if (!setup) return fail(at(fmt::format("stream `{}`", name), setup.error()));
    setups.push_back(std::move(*setup));
  }
  return setups;
}

Result<std::uint64_t> ring_bytes(const exec::StreamSetup& setup) {
  return ring::RingWriter::bytes_needed({.name = setup.info.name,
                                         .fields = setup.info.fields,
                                         .rows = setup.info.batch_size,
                                         .slots = publish::Ledger::slots_needed(setup.ledger),
                                         .lanes = setup.ledger.lanes});
}

}  // namespace headrace::server::session
