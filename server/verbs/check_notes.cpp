#include "server/verbs/check_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "clientlib/base/human.h"
#include "server/transform/device_rows.h"
#include "server/transform/op.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

std::string shape(const FieldSpec& field) {
  std::string text = "batch";
  for (const std::int64_t dim : field.shape) text += fmt::format(" x {}", dim);
  return fmt::format("{} {}, {}", field.name, name_of(field.dtype), text);
}

/// The size of a stream's dataset in GPU memory. `from`: its upload stream.
std::string resident_size(const StreamInfo& from) {
  std::uint64_t row = 0;
  for (const FieldSpec& field : from.fields) row += row_bytes(field);
  return human_bytes(row * from.samples);
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

void print_sharing(Told& told, const assembly::SharingGroup& group, const config::Config& config) {
  const bool alone = group.streams.size() == 1;
  if (!alone)
    told.line("streams {} share their first {}: their rows are decoded once\n",
              fmt::join(group.streams, ", "),
              group.transforms == 1 ? "transform" : count_of(group.transforms, "transform"));
  std::uint64_t largest = 0;
  for (const std::string& name : group.streams)
    if (const auto stream = config.streams.find(name); stream != config.streams.end())
      largest = std::max<std::uint64_t>(largest, stream->second.batch_size);
  if (group.window && group.window->room() < 2 * largest)
    told.line(
        "  warning: sharing.window of stream{} {} has room for {} rows only. Set it to at least {} ({} rows: "
        "two batches of the largest batch_size); otherwise rows are decoded again{}\n",
        alone ? "" : "s", fmt::join(group.streams, ", "), group.window->room(),
        human_bytes(2 * largest * group.window->row_bytes()), 2 * largest,
        alone ? " for a client that is behind" : "");
}

/// For each source, names the streams outside its largest sharing group, and why they share no rows with it.
void print_apart(Told& told, const assembly::Assembly& assembly, const config::Config& config) {
  const auto group_of = [&](const std::string& stream) -> const assembly::SharingGroup* {
    const auto found = std::find_if(assembly.sharing.begin(), assembly.sharing.end(),
                                    [&](const auto& group) { return group.has(stream); });
    return found == assembly.sharing.end() ? nullptr : &*found;
  };
  const auto maker_of = [&](const std::string& stream) -> const exec::SampleMaker* {
    const auto found = std::find_if(assembly.streams.begin(), assembly.streams.end(),
                                    [&](const auto& setup) { return setup.info.name == stream; });
    return found == assembly.streams.end() ? nullptr : found->maker.get();
  };
  const auto size_of = [](const assembly::SharingGroup* group) { return group ? group->streams.size() : 0; };
  std::map<std::string, std::string> most;  // by source: a stream of the largest group
  for (const auto& [name, stream] : config.streams) {
    const auto [at, added] = most.emplace(stream.source, name);
    if (!added && size_of(group_of(name)) > size_of(group_of(at->second))) at->second = name;
  }
  for (const auto& [name, stream] : config.streams) {
    const std::string& other = most.at(stream.source);
    const assembly::SharingGroup* const group = group_of(name);
    if (name == other || (group && group->has(other))) continue;
    const exec::SampleMaker *const maker = maker_of(name), *const other_maker = maker_of(other);
    if (maker == nullptr || other_maker == nullptr) continue;
    if (const std::string why =
            assembly::why_apart({name, stream, *maker}, {other, config.streams.at(other), *other_maker});
        !why.empty())
      told.line("streams {} and {} share no rows: {}\n", name, other, why);
  }
}

/// Names streams that wait for clients of others (an inherited wait_for), but share no rows with all of them.
void print_waits(Told& told, const assembly::Assembly& assembly, const config::Config& config) {
  std::set<std::string> named;
  for (const auto& [name, stream] : config.streams) {
    if (stream.sharing.wait_for <= 1 || named.contains(name)) continue;
    assembly::SharingGroup group{.streams = {name}};
    for (const assembly::SharingGroup& each : assembly.sharing)
      if (each.has(name)) group = each;
    named.insert(group.streams.begin(), group.streams.end());
    for (const auto& [other, waiting] : config.streams)
      if (waiting.source == stream.source && waiting.sharing.wait_for > 1 && !group.has(other)) {
        told.line(
            "warning: wait_for ({}) of {} counts the clients of {} only, because no rows are shared with "
            "{}\n",
            stream.sharing.wait_for, name, fmt::join(group.streams, ", "), other);
        break;
      }
  }
}

/// Estimates from the samples that were tried how many a cache's budget holds.
void print_room(Told& told, const assembly::CacheUse& use) {
  const cache::Arena& arena = *use.arena;
  const auto counts = arena.counts();
  const std::string head = fmt::format("{}: {}", arena.name(), human_bytes(arena.budget()));
  if (counts.samples == 0) {
    told.line("{}\n", head);
    return told.line("  warning: {} kept none of the samples that were tried: {}\n", arena.name(),
                     counts.misses > 0 ? "they are bad, or larger than it" : "none was requested from it");
  }
  const double each = static_cast<double>(arena.used()) / static_cast<double>(counts.samples);
  told.line("{}, room for about {:.0f} samples of the size of those that were tried; the source has {}\n",
            head, static_cast<double>(arena.budget()) / each, use.samples);
}

}  // namespace

void describe_stream(Told& told, const exec::StreamSetup& setup, const assembly::Assembly& assembly,
                     const config::Config& config) {
  const StreamInfo& info = setup.info;
  told.begin_stream(info.name, fmt::format("{}, {}, batches of {}", count_of(info.samples, "sample"),
                                           count_of_classes(info.classes.size()), info.batch_size));
  for (const FieldSpec& field : info.fields) told.line("  {}\n", shape(field));
  print_device_fields(told, info, config);
  if (const auto found = config.streams.find(info.name); found != config.streams.end())
    for (const transform::Transform& transform : found->second.plan.chain.transforms)
      if (const std::string warning = transform->warning(); !warning.empty())
        told.line("  warning: {}\n", warning);
  for (const exec::StreamSetup& other : assembly.streams)
    if (info.residence && other.info.name == info.residence->upload) {
      told.line("  residence: {} of GPU memory for each loader with a device, uploaded from stream {}\n",
                resident_size(other.info), other.info.name);
      const transform::PlanConfig& chain = config.streams.at(info.name).plan.chain;
      print_device_split(told, chain.transforms, transform::prefix_length(chain));
    }
  if (!info.live && info.batch_size > info.samples)
    told.line(
        "  warning: batch_size {} is larger than an epoch of {}: each epoch is one incomplete "
        "batch\n",
        info.batch_size, count_of(info.samples, "sample"));
}

void describe_sharing(Told& told, const assembly::Assembly& assembly, const config::Config& config) {
  for (const assembly::SharingGroup& group : assembly.sharing) print_sharing(told, group, config);
  print_apart(told, assembly, config);
  print_waits(told, assembly, config);
}

void describe_caches(Told& told, const assembly::Assembly& assembly) {
  for (const assembly::CacheUse& use : assembly.caches.memory) print_room(told, use);
}

void describe_memory(Told& told, const assembly::Assembly& assembly, const ring::MemoryHeadroom& room) {
  const RingBytes rings = rings_of(assembly);
  told.line("memory: {} available ({})\n", human_bytes(room.bytes), room.limited_by);
  told.line("  rings: {}{}\n", human_bytes(rings.first),
            rings.most > rings.first
                ? fmt::format(" with one client per stream, {} with all clients", human_bytes(rings.most))
                : "");
  const auto up_to = [&](std::string_view what, std::uint64_t bytes) {
    if (bytes > 0) told.line("  {}: up to {}\n", what, human_bytes(bytes));
  };
  up_to("windows", assembly::window_bytes(assembly));
  up_to("caches", assembly::cache_bytes(assembly));
  up_to("reading ahead", assembly.read_ahead_bytes);
  up_to("tables, tiles and feeds", assembly.other_bytes);
  told.line(
      "  a restart needs twice the rings of clients that pin them for a GPU, until they attach to the new "
      "server\n");
}

}  // namespace headrace::server::verbs
