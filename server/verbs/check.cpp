#include <fmt/format.h>

#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "clientlib/base/human.h"
#include "clientlib/ring/segment.h"
#include "server/assembly/assemble.h"
#include "server/exec/engine.h"
#include "server/placement/placement.h"
#include "server/session/labels.h"
#include "server/verbs/check_notes.h"
#include "server/verbs/dataset.h"
#include "server/verbs/fitness.h"
#include "server/verbs/propose.h"
#include "server/verbs/told.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

static_assert(config::kMaxStreams == exec::Engine::kMaxStreams);

struct CheckArguments {
  ConfigArguments config;
  bool all = false, as_json = false;
};

/// Describes each stream, and tries its samples. Those of a stream whose ring does not fit into `room` bytes
/// would take long, too.
void check_streams(Told& told, const assembly::Assembly& assembly, const config::Config& config, bool all,
                   std::uint64_t room) {
  nlohmann::json streams = nlohmann::json::array();
  for (const exec::StreamSetup& setup : assembly.streams) {
    const StreamInfo& info = setup.info;
    const auto ring = assembly::ring_size(setup);
    if (!ring) {
      told.error({ring.error().code, fmt::format("stream `{}`: {}", info.name, ring.error().message)});
      continue;
    }
    describe_stream(told, setup, assembly, config);
    if (ring->first_bytes <= room) {
      const Finding samples = judge_samples(setup, config, all);
      if (all && samples.health == Health::kGood && !info.live) told.line("  {}\n", samples.found);
      told.judge(samples, "  ");
    }
    told.line("  ring: {}\n", to_string(*ring));
    told.end_stream();
    streams.push_back({{"name", info.name},
                       {"samples", info.samples},
                       {"classes", info.classes.size()},
                       {"batch_size", info.batch_size},
                       {"ring_bytes", ring->first_bytes},
                       {"most_ring_bytes", ring->most()}});
  }
  told.set("streams", std::move(streams));
}

void check_configuration(Told& told, const CheckArguments& arguments) {
  const auto config = arguments.config.load();
  if (!config) return told.errors(config.error());
  const auto assembly = assembly::assemble(*config);
  if (!assembly) return told.errors(assembly.error());
  for (const std::string& name : assembly->unused)
    told.line("warning: source `{}`: no stream serves it, so it was not opened\n", name);
  const auto running = RunningServer::find(config->server.directory);
  const ring::MemoryHeadroom room = room_without(running);
  check_streams(told, *assembly, *config, arguments.all, room.bytes);
  for (const std::string& text : session::label_conflicts(assembly->streams))
    told.line("warning: {}\n", text);
  describe_sharing(told, *assembly, *config);
  describe_caches(told, *assembly);
  describe_memory(told, *assembly, room);
  told.judge(judge_memory(*assembly, running));
  told.judge(judge_directory(config->server, running));
  told.judge(judge_port(config->server, running));
  if (config->server.numa == config::Numa::kAuto)
    if (const auto placement = placement::place_here(config->server.threads); !placement.empty())
      told.line("numa, where the kernel allows it: {}\n", placement::to_string(placement));
  told.set("workers", config->server.threads);
  told.set("memory_available", room.bytes);
  told.set("bytes_beside_rings", assembly::bytes_beside_rings(*assembly));
  if (!told.sound()) return;
  if (!told.certain())
    return told.line("no error was found, but `headrace serve {}` may fail: see the warnings above\n",
                     arguments.config.file);
  told.line("ok: `headrace serve {}` will run with {}{}\n", arguments.config.file,
            count_of(config->server.threads, "worker"),
            running ? ", once the running server has stopped" : "");
}

int check(const CheckArguments& arguments) {
  const std::string& file = arguments.config.file;
  if (!is_config(file)) {
    if (!arguments.all && !arguments.as_json) return propose(file);
    return report_call({ErrorCode::kInvalidArgument,
                        fmt::format("{1} needs a configuration: headrace check {0} > headrace.yaml, then "
                                    "headrace check {1} headrace.yaml",
                                    file, arguments.all ? "--all" : "--json")},
                       arguments.as_json);
  }
  Told told(arguments.as_json);
  try {
    check_configuration(told, arguments);
  } catch (const std::exception& thrown) {  // as of a thread that cannot be created
    if (!arguments.as_json) throw;
    told.error(error_of(thrown));
  }
  return told.finish();
}

}  // namespace

int report_call(const Error& error, bool as_json) {
  if (!as_json) return report(error);
  Told told(as_json);
  told.error(error);
  return told.finish();
}

void add_check(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<CheckArguments>();
  CLI::App* verb = app.add_subcommand(
      "check",
      "Check a configuration, its datasets and the memory that it needs. Given a dataset's "
      "folder or file, print a configuration for it");
  arguments->config.add_to(*verb);
  verb->add_flag("--all", arguments->all,
                 "Make every sample of an epoch of each stream, and name those that are bad");
  add_json(*verb, arguments->as_json);
  verb->callback([arguments, &exit_code] { exit_code = check(*arguments); });
}

}  // namespace headrace::server::verbs
