#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "clientlib/ring/segment.h"
#include "server/session/assemble.h"
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

int check(const ConfigArguments& arguments) {
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
  CLI::App* verb =
      app.add_subcommand("check", "Check a configuration, its datasets and the memory that it needs");
  arguments->add_to(*verb);
  verb->callback([arguments, &exit_code] { exit_code = check(*arguments); });
}

}  // namespace headrace::server::verbs
