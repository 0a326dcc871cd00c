#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "clientlib/ring/segment.h"
#include "server/exec/engine.h"
#include "server/metrics/http.h"
#include "server/placement/placement.h"
#include "server/session/assemble.h"
#include "server/session/directory.h"
#include "server/transform/device_rows.h"
#include "server/transform/op.h"
#include "server/verbs/dataset.h"
#include "server/verbs/propose.h"
#include "server/verbs/try_samples.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

using nlohmann::json;

static_assert(config::kMaxStreams == exec::Engine::kMaxStreams);

/// Prints findings at once or, with --json, collects them.
class Told {
 public:
  explicit Told(bool as_json) : as_json_(as_json) {}

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    constexpr std::string_view kWarning = "warning: ", kBlank = " \n";
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    if (!as_json_) return fmt::print("{}", printable(text));
    text.erase(0, std::min(text.find_first_not_of(kBlank), text.size()));
    text.erase(text.find_last_not_of(kBlank) + 1);
    const bool warns = text.starts_with(kWarning);
    found_[warns ? "warnings" : "notes"].push_back(warns ? text.substr(kWarning.size()) : text);
  }
  /// Also on stderr. Returns the exit code.
  int error(const Error& error) {
    found_["errors"].push_back(error.to_string());
    return report(error);
  }
  [[nodiscard]] json found() const { return found_; }

 private:
  const bool as_json_;
  json found_ = {{"warnings", json::array()}, {"notes", json::array()}, {"errors", json::array()}};
};

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string shape(const FieldSpec& field) {
  std::string text = "batch";
  for (const std::int64_t dim : field.shape) text += fmt::format(" x {}", dim);
  return fmt::format("{} {}, {}", field.name, name_of(field.dtype), text);
}

/// The size of a stream's dataset in GPU memory. `from`: its upload stream.
std::string resident_size(const StreamInfo& from) {
  std::uint64_t row = 0;
  for (const FieldSpec& field : from.fields) row += row_bytes(field);
  return megabytes(row * from.samples);
}

/// Reports which transforms run on the device: those of `chain` from `first` on. Returns false if there are
/// none.
bool print_device_split(Told& told, const std::vector<transform::Transform>& chain, std::size_t first) {
  std::vector<std::string_view> server, device;
  for (std::size_t i = 0; i < chain.size(); ++i)
    if (!transform::is_skipped(chain[i])) (i < first ? server : device).push_back(chain[i]->name());
  const auto list = [](const auto& names) {
    return names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", "));
  };
  told.line("    transforms on the device: {}; on the server: {}\n", list(device), list(server));
  return !device.empty();
}

/// Reports what a stream computes on its loader's device.
void print_device_fields(Told& told, const StreamInfo& info, const config::Config& config) {
  const auto found = config.streams.find(info.name);
  if (found == config.streams.end()) return;  // an upload stream
  const transform::StreamPlan& plan = found->second.plan;
  for (const DeviceImage& image : info.on_device) {
    const std::string& field = info.fields[image.field].name;
    told.line("  {}: computed on the loader's device (device: gpu), from {} KB a row in the ring\n", field,
              (image.row_bytes() + 500) / 1000);
    const auto chain = plan.chain_of(field, false).transforms;
    if (!print_device_split(told, chain, transform::device_begins(chain)))
      told.line(
          "  warning: no transform runs on the device: it applies only flips, 90-degree rotations, colors, "
          "normalize and erasing at the end of `transforms`; put other transforms before them\n");
  }
}

void print_sharing(Told& told, const session::SharingGroup& group, const config::Config& config) {
  if (group.streams.size() == 1) return;
  told.line("streams {} share their first {} transform{}: their rows are decoded once\n",
            fmt::join(group.streams, ", "), group.transforms, group.transforms == 1 ? "" : "s");
  std::uint64_t largest = 0;
  for (const std::string& name : group.streams)
    if (const auto stream = config.streams.find(name); stream != config.streams.end())
      largest = std::max<std::uint64_t>(largest, stream->second.batch_size);
  if (group.window && group.window->room() < 2 * largest)
    told.line(
        "  warning: the window of these streams (sharing.window) has room for {} rows. Raise it to at least "
        "{} rows ({:.1f} MB), two batches of the largest batch_size, or rows are decoded again\n",
        group.window->room(), 2 * largest,
        static_cast<double>(2 * largest * group.window->row_bytes()) / 1e6);
}

/// For each source, names the streams outside its largest sharing group, and why they share no rows with it.
void print_apart(Told& told, const session::Assembly& assembly, const config::Config& config) {
  const auto group_of = [&](const std::string& stream) -> const session::SharingGroup* {
    const auto found = std::find_if(assembly.sharing.begin(), assembly.sharing.end(),
                                    [&](const auto& group) { return group.has(stream); });
    return found == assembly.sharing.end() ? nullptr : &*found;
  };
  const auto size_of = [](const session::SharingGroup* group) { return group ? group->streams.size() : 0; };
  std::map<std::string, std::string> most;  // by source: a stream of the largest group
  for (const auto& [name, stream] : config.streams) {
    const auto [at, added] = most.emplace(stream.source, name);
    if (!added && size_of(group_of(name)) > size_of(group_of(at->second))) at->second = name;
  }
  for (const auto& [name, stream] : config.streams) {
    const std::string& other = most.at(stream.source);
    const session::SharingGroup* const group = group_of(name);
    if (name == other || (group && group->has(other))) continue;
    if (const std::string why = session::why_apart(stream, config.streams.at(other)); !why.empty())
      told.line("streams {} and {} share no rows: {}\n", name, other, why);
  }
}

/// Names streams that wait for clients of others (an inherited wait_for), but share no rows with all of them.
void print_waits(Told& told, const session::Assembly& assembly, const config::Config& config) {
  std::set<std::string> named;
  for (const auto& [name, stream] : config.streams) {
    if (stream.sharing.wait_for <= 1 || named.contains(name)) continue;
    session::SharingGroup group{.streams = {name}};
    for (const session::SharingGroup& each : assembly.sharing)
      if (each.has(name)) group = each;
    named.insert(group.streams.begin(), group.streams.end());
    for (const auto& [other, waiting] : config.streams)
      if (waiting.source == stream.source && waiting.sharing.wait_for > 1 && !group.has(other)) {
        told.line("wait_for ({}) of {} counts the clients of {} only: no rows are shared with {}\n",
                  stream.sharing.wait_for, name, fmt::join(group.streams, ", "), other);
        break;
      }
  }
}

/// Reports bad samples. It is an error if all that were tried are bad, or if the stream would fail because of
/// them.
Result<void> check_samples(Told& told, const exec::StreamSetup& setup, const config::Config& config,
                           bool all) {
  const auto found = try_samples(setup.info.name, *setup.maker, all, config.server.threads);
  if (!found) return fail(found.error());
  const bool every = found->tried == setup.maker->size();
  const auto of = [&](std::uint64_t samples) {
    return fmt::format("{} sample{}", samples, samples == 1 ? "" : "s");
  };
  if (found->bad == 0) {
    if (all) told.line("  all of the first epoch's {} are sound\n", of(found->tried));
    return {};
  }
  const bool only = found->bad == found->tried;
  std::string list = fmt::format("{} of {}{} {} bad", only ? "all" : std::to_string(found->bad),
                                 of(found->tried), every ? "" : " that were tried (`check --all` tries all)",
                                 found->bad == 1 && !only ? "is" : "are");
  list += found->first.size() < found->distinct ? fmt::format("; the first {}:", found->first.size()) : ":";
  for (const std::string& what : found->first) list += "\n    " + what;
  const double allowed = setup.maker->allowed_bad();
  if (only || allowed == 0 || (every && static_cast<double>(found->distinct) > allowed))
    return fail(
        ErrorCode::kDatasetInvalid,
        fmt::format(
            "stream `{}`: {}{}", setup.info.name, list,
            only ? ""
                 : fmt::format("\n  the stream would fail: its max_bad and on_error allow {:.0f}. Replace or "
                               "remove these files, raise max_bad, or set on_error: replace",
                               std::floor(allowed))));
  told.line("  warning: {}\n", list);
  return {};
}

/// Estimates from the samples that were tried how many a cache's budget holds.
std::string room_of(const session::CacheUse& use) {
  const cache::Arena& arena = *use.arena;
  const auto counts = arena.counts();
  const std::string head = fmt::format("{}: {}", arena.name(), megabytes(arena.budget()));
  if (counts.samples == 0)
    return fmt::format("{}\n  warning: it kept none of the samples that were tried: {}", head,
                       counts.misses > 0 ? "they are bad, or larger than it" : "none was requested from it");
  const double each = static_cast<double>(arena.used()) / static_cast<double>(counts.samples);
  return fmt::format(
      "{}, room for about {:.0f} samples of the size of those that were tried; the source has {}", head,
      static_cast<double>(arena.budget()) / each, use.samples);
}

/// `first`, `most`: bytes of all rings with one client for each stream, and with all.
void print_memory(Told& told, const session::Assembly& assembly, const ring::MemoryHeadroom& headroom,
                  std::uint64_t first, std::uint64_t most) {
  told.line("memory: {} available ({})\n", megabytes(headroom.bytes), headroom.limited_by);
  told.line(
      "  rings: {}{}\n", megabytes(first),
      most > first ? fmt::format(" with one client per stream, {} with all clients", megabytes(most)) : "");
  const auto up_to = [&](std::string_view what, std::uint64_t bytes) {
    if (const std::string size = megabytes(bytes); size != megabytes(0))
      told.line("  {}: up to {}\n", what, size);
  };
  up_to("windows", session::window_bytes(assembly));
  up_to("caches", session::cache_bytes(assembly));
  up_to("reading ahead", assembly.read_ahead_bytes);
  up_to("tables, tiles and feeds", assembly.other_bytes);
  told.line(
      "  a restart needs twice the rings: clients keep the old ones until they attach to the new server\n");
}

/// `first`, `most`: as for print_memory().
Result<void> check_memory(Told& told, const session::Assembly& assembly, std::uint64_t first,
                          std::uint64_t most) {
  if (auto fits = session::check_memory(assembly, first); !fits) return fits;
  const ring::MemoryHeadroom headroom = ring::memory_headroom();
  const std::uint64_t restart = 2 * most + session::bytes_beside_rings(assembly);
  if (const std::string lacking = session::short_of_memory(assembly); !lacking.empty()) {
    told.line("warning: {}\n", lacking);
  } else if (restart > headroom.bytes) {
    told.line(
        "warning: a restart while all clients are attached needs {}, {} are available: lower "
        "ring.max_clients or ring.prefetch\n",
        megabytes(restart), megabytes(headroom.bytes));
  }
  return {};
}

struct CheckArguments {
  ConfigArguments config;
  bool all = false, as_json = false;
};

int check(const CheckArguments& arguments) {
  if (!is_config(arguments.config.file)) {
    if (arguments.all || arguments.as_json)
      return report(
          {ErrorCode::kInvalidArgument,
           fmt::format(
               "{1} needs a configuration: headrace check {0} > headrace.yaml, then headrace check {1} "
               "headrace.yaml",
               arguments.config.file, arguments.all ? "--all" : "--json")});
    return propose(arguments.config.file);
  }
  auto config = arguments.config.load();
  if (!config) return report(config.error());
  auto assembly = session::assemble(*config);
  if (!assembly) return report(assembly.error());
  Told told(arguments.as_json);
  for (const std::string& name : assembly->unused)
    told.line("warning: source `{}`: no stream serves it, so it was not opened\n", name);
  json streams = json::array();
  int status = 0;
  std::uint64_t first = 0, most = 0;  // bytes of all rings, with one client on each stream and with all
  for (const exec::StreamSetup& setup : assembly->streams) {
    const auto ring = session::ring_size(setup);
    if (!ring) return report(ring.error());
    first += ring->first_bytes;
    most += ring->most();
    const StreamInfo& info = setup.info;
    told.line("stream {}: {} samples, {}, batches of {}\n", info.name, info.samples,
              count_of_classes(info.classes.size()), info.batch_size);
    for (const FieldSpec& field : info.fields) told.line("  {}\n", shape(field));
    print_device_fields(told, info, *config);
    if (const auto found = config->streams.find(info.name); found != config->streams.end())
      for (const transform::Transform& transform : found->second.plan.chain.transforms)
        if (const std::string warning = transform->warning(); !warning.empty())
          told.line("  warning: {}\n", warning);
    for (const exec::StreamSetup& other : assembly->streams)
      if (info.residence && other.info.name == info.residence->upload) {
        told.line("  residence: {} of GPU memory for each loader with a device, uploaded from stream {}\n",
                  resident_size(other.info), other.info.name);
        const transform::PlanConfig& chain = config->streams.at(info.name).plan.chain;
        print_device_split(told, chain.transforms, transform::prefix_length(chain));
      }
    if (!info.live && info.batch_size > info.samples)
      told.line(
          "  warning: batch_size {} is larger than an epoch of {} samples: each epoch is one incomplete "
          "batch\n",
          info.batch_size, info.samples);
    // The samples of a live stream are yet to come.
    if (!info.live)
      if (auto sound = check_samples(told, setup, *config, arguments.all); !sound)
        status = report(sound.error());
    told.line("  ring: {}\n", to_string(*ring));
    streams.push_back({{"name", info.name},
                       {"samples", info.samples},
                       {"classes", info.classes.size()},
                       {"batch_size", info.batch_size},
                       {"ring_bytes", ring->first_bytes},
                       {"most_ring_bytes", ring->most()}});
  }
  for (const session::SharingGroup& group : assembly->sharing) print_sharing(told, group, *config);
  print_apart(told, *assembly, *config);
  print_waits(told, *assembly, *config);
  for (const session::CacheUse& use : assembly->caches.memory) told.line("{}\n", room_of(use));
  const ring::MemoryHeadroom headroom = ring::memory_headroom();
  print_memory(told, *assembly, headroom, first, most);
  const bool is_running = session::Directory::is_in_use(config->server.directory);
  if (!is_running)  // whose memory is not available now, but will be
    if (auto fits = check_memory(told, *assembly, first, most); !fits) return report(fits.error());
  if (auto usable = session::Directory::check(config->server.directory); !usable)
    return report(usable.error());
  if (is_running) {
    told.line(
        "warning: a server runs in {} now, so the memory was not checked; another server needs a "
        "server.directory and a server.metrics.port "
        "of its own\n",
        config->server.directory.string());
  } else if (const auto& metrics = config->server.metrics) {
    if (const auto http = metrics::HttpServer::start(metrics->address, metrics->port, {}); !http)
      return report(http.error());
  }
  if (config->server.numa == config::Numa::kAuto)
    if (const auto placement = placement::place_here(config->server.threads); !placement.empty())
      told.line("numa, where the kernel allows it: {}\n", placement::to_string(placement));
  if (arguments.as_json) {
    json document = told.found();
    document["workers"] = config->server.threads;
    document["streams"] = std::move(streams);
    document["memory_available"] = headroom.bytes;
    document["bytes_beside_rings"] = session::bytes_beside_rings(*assembly);
    print_as_json(document);
    return status;
  }
  if (status != 0) return status;  // of samples: reported above, for each stream
  told.line("ok: `headrace serve {}` will run with {} worker{}{}\n", arguments.config.file,
            config->server.threads, config->server.threads == 1 ? "" : "s",
            is_running ? ", once the running server has stopped" : "");
  return 0;
}

}  // namespace

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
