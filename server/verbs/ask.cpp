// The verbs that ask a running server once: health, ls, stats, sample, drain.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "clientlib/base/human.h"
#include "clientlib/client/delay_reason.h"
#include "headrace/client.h"
#include "server/config/choose_stream.h"
#include "server/exec/stream_status.h"
#include "server/log/sink.h"
#include "server/status/growth.h"
#include "server/verbs/question.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

const CLI::Validator kNumber(
    [](std::string& text) {
      std::int64_t number = 0;
      const bool sound = CLI::detail::lexical_cast(text, number) && number >= 0;
      return sound ? std::string() : "'" + text + "' is not a whole number from 0";
    },
    "NUMBER");

nlohmann::json streams_in(const nlohmann::json& stats) {
  return stats.value("streams", nlohmann::json::object());
}

/// Empty: it has not failed.
std::string failure_of(const nlohmann::json& stream) {
  const auto failed = stream.value("failed", nlohmann::json());
  return failed.is_object() ? failed.value("message", std::string()) : std::string();
}

std::uint64_t count(const nlohmann::json& of, const char* key) {
  return of.value(key, std::uint64_t{0});
}

/// Prints which other client delays batch `due`, if one does.
void print_reason(const nlohmann::json& stream, const Cursor& due) {
  if (!failure_of(stream).empty()) return;
  if (const std::string reason = client::reason_in_stats(stream, due); !reason.empty())
    fmt::print("    {}\n", log::escaped(reason));
}

/// " (`a` of stream `train`)", for a client of stream `name`: one of the streams that share rows with it and
/// that is not behind. Empty: there is none.
std::string foremost_for(const std::string& name, const nlohmann::json& stats) {
  std::vector<std::string> streams{name};
  for (const nlohmann::json& group : stats.value("sharing", nlohmann::json::array()))
    if (const auto shared = group.value("streams", std::vector<std::string>());
        std::find(shared.begin(), shared.end(), name) != shared.end())
      streams.insert(streams.end(), shared.begin(), shared.end());  // first, this stream's own clients
  for (const std::string& other : streams)
    for (const nlohmann::json& client : stats.at("streams").at(other).at("clients"))
      if (count(client, "sharing_lag") == 0)
        return fmt::format(" (`{}`{})", log::escaped(client.value("client", std::string())),
                           other == name ? "" : fmt::format(" of stream `{}`", other));
  return {};
}

/// Prints the clients of stream `name`.
void print_clients(const std::string& name, const nlohmann::json& stats) {
  const nlohmann::json stream = streams_in(stats).value(name, nlohmann::json::object());
  const auto clients = stream.value("clients", nlohmann::json::array());
  for (const nlohmann::json& client : clients) {
    const auto next = client.value("next", nlohmann::json::object());
    const std::uint64_t lag = count(client, "sharing_lag");
    fmt::print("  client {}: epoch {}, batch {}", log::escaped(client.value("client", std::string())),
               count(next, "epoch"), count(next, "batch"));
    if (lag > count(stream, "max_lag")) {  // else they share slots
      const auto seconds = client.value("lag_seconds", nlohmann::json());
      fmt::print(", {}{} batch{}{} behind the foremost client{}",
                 lag >= exec::ClientStatus::kMostLag ? "at least " : "", lag, lag == 1 ? "" : "es",
                 seconds.is_number() ? fmt::format(" ({:.1f} s)", seconds.get<double>()) : "",
                 foremost_for(name, stats));
    }
    if (count(stream, "awaited_clients") > 0 && !client.value("called_next", true))
      fmt::print(", has not called next() yet");
    if (client.value("fenced", false))
      fmt::print(", fenced: it sent no heartbeat, and attaches again at its next call");
    fmt::print("\n");
    if ((client.value("waiting", false) || client.value("waits_for_one_behind", false)) &&
        count(stream, "awaited_clients") == 0)
      print_reason(stream, {.epoch = count(next, "epoch"), .batch = count(next, "batch")});
  }
  if (!clients.empty() && count(stream, "awaited_clients") > 0) print_reason(stream, {});
}

std::string sharing_factor(std::uint64_t decoded, std::uint64_t granted) {
  const auto factor = status::sharing_factor(static_cast<double>(granted), static_cast<double>(decoded));
  return factor.is_number() ? fmt::format(": sharing factor {:.2f}", factor.get<double>()) : "";
}

/// Prints the samples decoded and granted by streams that share rows, and the sharing factor, since the start
/// and in the last 30 s in which no client came or went.
void print_sharing(const nlohmann::json& group, const nlohmann::json& all) {
  const auto streams = group.value("streams", std::vector<std::string>());
  const std::uint64_t decoded = count(group, "decoded"), granted = count(group, "granted");
  if (granted == 0) return;
  const nlohmann::json& any = all.at(streams.front());  // they share the window
  fmt::print("stream{} {}: {} samples decoded, {} granted to clients{}; window: {} of {}\n",
             streams.size() == 1 ? "" : "s", fmt::join(streams, ", "), decoded, granted,
             sharing_factor(decoded, granted), human_bytes(count(any, "window_bytes")),
             human_bytes(count(any, "window_limit_bytes")));
  const auto ago = group.find("interval_ended_seconds_ago");
  if (ago == group.end() || !ago->is_number() || count(group, "granted_in_30_s") == 0) return;
  const std::uint64_t again = count(group, "decoded_again_in_30_s");
  fmt::print("  in 30 s that ended {:.0f} s ago: {} decoded, {} granted{}{}\n", ago->get<double>(),
             count(group, "decoded_in_30_s"), count(group, "granted_in_30_s"),
             sharing_factor(count(group, "decoded_in_30_s"), count(group, "granted_in_30_s")),
             again == 0
                 ? ""
                 : fmt::format("; {} decoded again because clients are too far apart or began late", again));
}

/// Prints the samples of streams that share no rows.
void print_alone(const nlohmann::json& groups, const nlohmann::json& all) {
  std::set<std::string> shared;
  for (const nlohmann::json& group : groups)
    for (const nlohmann::json& name : group.value("streams", nlohmann::json::array())) shared.insert(name);
  for (const auto& [name, stream] : all.items())
    if (!shared.contains(name) && count(stream, "granted") > 0)
      fmt::print("stream {}: {} samples decoded, {} taken from a cache, {} granted to clients\n", name,
                 count(stream, "decoded"), count(stream, "cached"), count(stream, "granted"));
}

/// Prints what other nodes made for this server, with a line for each node if asked.
void print_nodes(const nlohmann::json& stats, bool each) {
  const auto bridge = stats.value("bridge", nlohmann::json::object());
  const auto nodes = bridge.value("nodes", nlohmann::json::array());
  if (each && nodes.empty() && !bridge.value("connected", false))
    fmt::print("no other node makes rows for this server (headrace.ray.start() places nodes)\n");
  if (nodes.empty()) return;
  std::uint64_t samples = 0;
  for (const nlohmann::json& node : nodes) samples += count(node, "samples");
  fmt::print(
      "other nodes: {} made {} samples{}; orders: {} open, {} late, {} failed; {} samples made twice\n",
      nodes.size(), samples, bridge.value("connected", false) ? "" : " (the bridge is not connected)",
      count(bridge, "open"), count(bridge, "late"), count(bridge, "failed"),
      count(bridge, "samples_made_twice"));
  if (!each) return;
  for (const nlohmann::json& node : nodes) {
    const auto refused = node.value("refused", nlohmann::json());
    const std::uint64_t sent = count(node, "sent_bytes");
    fmt::print("  node {}: {} samples, {} received{}{}\n", log::escaped(node.value("node", std::string())),
               count(node, "samples"), human_bytes(count(node, "received_bytes")),
               sent > 0 ? ", " + human_bytes(sent) + " sent" : "",
               refused.is_string() ? ", refused: " + log::escaped(refused.get<std::string>()) : "");
  }
}

void print(const SampleView& sample) {
  fmt::print("name: {}\nsample_index: {}\nlabel: {}\nreplaced: {}\nparameters: {}\n",
             log::escaped(sample.name), sample.sample_index, sample.label, sample.replaced,
             sample.parameters);
  for (const FieldSpec& field : sample.fields)
    fmt::print("field: {} {}{}{}\n", field.name, name_of(field.dtype), field.shape.empty() ? "" : " ",
               fmt::join(field.shape, "x"));
}

nlohmann::json describe(const SampleView& sample) {
  nlohmann::json fields = nlohmann::json::array();
  for (const FieldSpec& field : sample.fields)
    fields.push_back({{"name", field.name}, {"dtype", name_of(field.dtype)}, {"shape", field.shape}});
  return {{"name", sample.name},
          {"sample_index", sample.sample_index},
          {"label", sample.label},
          {"replaced", sample.replaced},
          {"parameters", nlohmann::json::parse(sample.parameters, nullptr, false)},
          {"fields", std::move(fields)}};
}

}  // namespace

void add_health(CLI::App& app, int& exit_code) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* verb =
      add_question(app, "health", "Exit 0 if a server answers and none of its streams has failed", exit_code,
                   [as_json](Client& client) -> Result<void> {
                     const auto stats = stats_of(client);
                     if (!stats) return tl::make_unexpected(stats.error());
                     for (const nlohmann::json& stream : streams_in(*stats))
                       if (auto why = failure_of(stream); !why.empty())
                         return fail(ErrorCode::kStreamFailed, std::move(why));
                     if (*as_json)
                       print_as_json({{"address", client.address()}, {"healthy", true}});
                     else
                       fmt::print("ok: {} answers\n", client.address());
                     return {};
                   });
  add_json(*verb, *as_json);
}

void add_ls(CLI::App& app, int& exit_code) {
  auto cluster = std::make_shared<bool>(false);
  CLI::App* verb = add_question(
      app, "ls", "List a server's streams, their clients and how much they share (as JSON: `stats`)",
      exit_code, [cluster](Client& client) -> Result<void> {
        auto streams = client.streams();
        if (!streams) return tl::make_unexpected(streams.error());
        const auto stats = stats_of(client);
        if (!stats) return tl::make_unexpected(stats.error());
        const nlohmann::json figures = streams_in(*stats);
        for (const StreamInfo& info : *streams) {
          fmt::print("{:20} {:9} {:>10} samples  batches of {:<5} {}\n", info.name,
                     info.delivery == Delivery::kShard ? "shard" : "broadcast", info.samples, info.batch_size,
                     count_of_classes(info.classes.size()));
          const nlohmann::json stream = figures.value(info.name, nlohmann::json::object());
          if (const auto why = failure_of(stream); !why.empty())
            fmt::print("  FAILED: {}\n", log::escaped(why));
          print_clients(info.name, *stats);
        }
        const auto groups = stats->value("sharing", nlohmann::json::array());
        for (const nlohmann::json& group : groups) print_sharing(group, figures);
        print_alone(groups, figures);
        print_nodes(*stats, *cluster);
        return {};
      });
  verb->add_flag("--cluster", *cluster, "Also list the nodes that make rows for this server");
}

void add_stats(CLI::App& app, int& exit_code) {
  add_question(app, "stats", "Print a server's counters as JSON", exit_code,
               [](Client& client) -> Result<void> {
                 auto stats = client.stats();
                 if (!stats) return tl::make_unexpected(stats.error());
                 fmt::print("{}\n", *stats);
                 return {};
               });
}

void add_drain(CLI::App& app, int& exit_code) {
  add_question(app, "drain", "Ask a server to finish and exit", exit_code,
               [](Client& client) { return client.drain(); });
}

void add_sample(CLI::App& app, int& exit_code) {
  struct What {
    std::string stream, out, png, field = "image";
    std::int64_t epoch = 0, index = 0;
    bool as_json = false;
  };
  auto what = std::make_shared<What>();
  CLI::App* verb =
      add_question(app, "sample", "Show one sample as trainers receive it, and the parameters drawn for it",
                   exit_code, [what](Client& client) -> Result<void> {
                     const auto streams = client.streams();
                     if (!streams) return fail(streams.error());
                     std::vector<std::string> names;
                     for (const StreamInfo& info : *streams) names.push_back(info.name);
                     const auto stream = config::choose_stream(names, what->stream);
                     if (!stream) return fail(stream.error());
                     auto sample = client.sample(*stream, static_cast<std::uint64_t>(what->epoch),
                                                 static_cast<std::uint64_t>(what->index),
                                                 what->png.empty() ? "" : what->field);
                     if (!sample) return tl::make_unexpected(sample.error());
                     if (what->as_json)
                       print_as_json(describe(*sample));
                     else
                       print(*sample);
                     const std::string& path = what->png.empty() ? what->out : what->png;
                     if (path.empty()) return {};
                     return write_file(path, sample->bytes);
                   });
  verb->add_option("--stream", what->stream, "The sample's stream" + std::string(kDefaultStream));
  verb->add_option("--epoch", what->epoch, "Epoch (default: 0)")->check(kNumber);
  verb->add_option("--index", what->index, "Position in the epoch's order (default: 0)")->check(kNumber);
  auto* const out =
      verb->add_option("--out", what->out, "Write the fields' bytes to this file")->type_name(kPath);
  auto* const png =
      verb->add_option("--png", what->png, "Write an image field to this PNG file, with normalize undone")
          ->type_name(kPath);
  png->excludes(out);
  verb->add_option("--field", what->field, "The image field for --png (default: image)")->needs(png);
  add_json(*verb, what->as_json);
}

}  // namespace headrace::server::verbs
