#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "clientlib/ring/segment.h"
#include "server/session/assemble.h"
#include "server/source/detect.h"
#include "server/verbs/dataset.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string shape(const FieldSpec& field) {
  std::string text = "batch";
  for (const std::int64_t dim : field.shape) text += fmt::format("x{}", dim);
  return fmt::format("{} {} [{}]", field.name, name_of(field.dtype), text);
}

/// The first samples of the first epoch, as they would be served. All bad: so is the stream, soon.
Result<void> try_samples(const std::string& stream, const exec::SampleMaker& maker) {
  exec::RowScratch scratch;
  exec::LooseRow row(maker);
  const std::uint64_t tried = std::min<std::uint64_t>(maker.size(), 8);
  std::uint64_t bad = 0;
  std::string first;
  for (std::uint64_t position = 0; position < tried; ++position) {
    const auto made = maker.show(0, position, row.fields, scratch);
    const bool one_is_bad = !made && made.error().code == ErrorCode::kTooManyBadSamples;
    if (!made && !one_is_bad) return tl::make_unexpected(made.error());
    if (!one_is_bad && !made->replaced) continue;
    if (++bad == 1) first = made ? made->because : made.error().message;
  }
  if (bad == tried)
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("stream `{}`: all of {} samples that were tried are bad; the first: {}", stream,
                            tried, first));
  if (bad > 0)
    fmt::print("  warning: {} of {} samples that were tried are bad; the first: {}\n", bad, tried, first);
  return {};
}

/// A dataset instead of a configuration: the configuration goes to stdout, to be kept as a file.
int propose(const std::string& path) {
  auto proposal = source::propose(path);
  if (!proposal) return report(proposal.error());
  auto config = config::parse(proposal->config, "proposal.yaml");
  if (!config) return report(config.error());
  const auto setups = session::assemble(*config);
  if (!setups) return report(setups.error());
  fmt::print(stderr, "{}: {}\n", path, proposal->found);
  for (const exec::StreamSetup& setup : *setups)
    fmt::print(stderr, "  {}: {} samples, {} classes\n", setup.info.name, setup.info.samples,
               setup.info.classes.size());
  fmt::print(stderr, "a configuration that serves it (headrace check {} > headrace.yaml):\n\n", path);
  fmt::print("{}", proposal->config);
  return 0;
}

int check(const ConfigArguments& arguments) {
  if (!is_config(arguments.file)) return propose(arguments.file);
  auto config = arguments.load();
  if (!config) return report(config.error());
  auto setups = session::assemble(*config);
  if (!setups) return report(setups.error());
  std::uint64_t total = 0;
  for (const exec::StreamSetup& setup : *setups) {
    const auto bytes = session::ring_bytes(setup);
    if (!bytes) return report(bytes.error());
    total += *bytes;
    const StreamInfo& info = setup.info;
    fmt::print("stream {}: {} samples, {} classes, batches of {}\n", info.name, info.samples,
               info.classes.size(), info.batch_size);
    for (const FieldSpec& field : info.fields) fmt::print("  {}\n", shape(field));
    if (auto sound = try_samples(info.name, *setup.maker); !sound) return report(sound.error());
    fmt::print("  ring: {} slots for {} clients, {}\n", publish::Ledger::slots_needed(setup.ledger),
               setup.ledger.lanes, megabytes(*bytes));
  }
  const ring::MemoryHeadroom headroom = ring::memory_headroom();
  // While clients of a server that died still hold its ring, the next server's ring lives beside it.
  fmt::print("memory: rings {}, twice that while a server restarts, {} available ({})\n", megabytes(total),
             megabytes(headroom.bytes), headroom.limited_by);
  if (total > headroom.bytes)
    return report({ErrorCode::kNotEnoughMemory,
                   fmt::format("the rings need {}, {} are available ({}): lower batch_size, "
                               "ring.prefetch or ring.max_clients",
                               megabytes(total), megabytes(headroom.bytes), headroom.limited_by)});
  if (2 * total > headroom.bytes)
    fmt::print("warning: a restart beside living clients needs {}, more than there is\n",
               megabytes(2 * total));
  fmt::print("ok: `headrace serve {}` will run with {} workers\n", arguments.file, config->server.threads);
  return 0;
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ConfigArguments>();
  CLI::App* verb = app.add_subcommand(
      "check",
      "Check a configuration, its datasets and the memory that it needs; given a dataset's "
      "folder or file, propose a configuration for it");
  arguments->add_to(*verb);
  verb->callback([arguments, &exit_code] { exit_code = check(*arguments); });
}

}  // namespace headrace::server::verbs
