#include "server/session/sharing_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::server::session {
namespace {

constexpr std::uint64_t kIntervalNs = 30'000'000'000;
/// Warn above this ratio: samples decoded, to samples that the busiest job received.
constexpr double kTooMuch = 1.5;
/// Jobs that receive less than this part of the most are idle.
constexpr double kIdle = 0.1;
/// Fewer samples say nothing: they may have been decoded ahead.
constexpr std::uint64_t kFewest = 100;

}  // namespace

SharingWatch::SharingWatch(const std::vector<std::string>& streams, bool broadcast)
    : streams_(fmt::format("stream{} `{}`", streams.size() == 1 ? "" : "s", fmt::join(streams, "`, `"))),
      remedy_(
          streams.size() > 1 ? "start the jobs at the same time"
          : broadcast
              ? "set sharing.wait_for, attach a late job with Loader(join=\"now\"), which skips samples, or "
                "set sharing.on_lag: wait"
              : "set sharing.wait_for, or attach a late job with Loader(join=\"now\"), which skips samples") {
}

std::optional<std::string> SharingWatch::check(std::uint64_t now_ns, const Figures& figures) {
  std::map<std::string, std::uint64_t> received;
  for (const Job& job : figures.jobs) received[job.name] += job.received;
  const bool same_jobs =
      received.size() == last_.size() &&
      std::equal(received.begin(), received.end(), last_.begin(),
                 [](const auto& a, const auto& b) { return a.first == b.first && a.second >= b.second; });
  const bool over = same_jobs && now_ns - since_ns_ >= kIntervalNs;
  last_ = received;
  if (same_jobs && !over) return std::nullopt;

  std::optional<std::string> warning;
  warned_ = warned_ && same_jobs;
  cost_ = {};
  if (over) {
    std::uint64_t most = 0;
    for (const auto& [name, count] : received) most = std::max(most, count - received_[name]);
    const auto active = std::count_if(received.begin(), received.end(), [&](const auto& job) {
      return static_cast<double>(job.second - received_[job.first]) > kIdle * static_cast<double>(most);
    });
    // Other threads count meanwhile: the sum may be older than the one before.
    const std::uint64_t decoded = figures.decoded - std::min(figures.decoded, decoded_);
    const bool could_share = active >= 2 && most >= kFewest;
    const bool wasteful = could_share && static_cast<double>(decoded) > kTooMuch * static_cast<double>(most);
    // How far the clients of different streams are apart is not known.
    const bool apart =
        wasteful || (could_share && std::any_of(figures.jobs.begin(), figures.jobs.end(),
                                                [](const Job& job) { return job.behind > 0; }));
    cost_ = {decoded, apart ? decoded - std::min(decoded, most) : 0};
    if (wasteful && !warned_) {
      const auto last = std::max_element(figures.jobs.begin(), figures.jobs.end(),
                                         [](const Job& a, const Job& b) { return a.behind < b.behind; });
      const bool full = figures.refused > refused_;
      warning = fmt::format(
          "{}: {} samples were decoded in {} s, but no job received more than {}: the {} jobs are too far "
          "apart "
          "to share rows{}{}; {}{}",
          streams_, decoded, (now_ns - since_ns_) / 1'000'000'000, most, active,
          last->behind == 0
              ? ""
              : fmt::format("; `{}` is {}{} batches behind", last->name,
                            last->behind >= exec::ClientStatus::kMostLag ? "at least " : "", last->behind),
          full ? fmt::format("; the window ({:.1f} MB) is full",
                             static_cast<double>(figures.window_bytes) / 1e6)
               : "",
          full ? "raise sharing.window, or " : "", remedy_);
    }
    warned_ = wasteful;
  }
  since_ns_ = now_ns;
  decoded_ = figures.decoded;
  refused_ = figures.refused;
  received_ = std::move(received);
  return warning;
}

SharingWatch::Figures sharing_figures(const exec::Engine& engine, const SharingGroup& group) {
  SharingWatch::Figures out{.refused = group.window->refused(), .window_bytes = group.window->budget()};
  for (std::size_t i = 0; i < engine.stream_count(); ++i) {
    const exec::Stream& stream = engine.stream(i);
    const std::string& name = stream.info().name;
    if (std::find(group.streams.begin(), group.streams.end(), name) == group.streams.end()) continue;
    const metrics::StreamTotals totals = engine.totals(i);
    out.decoded += totals.samples - std::min(totals.samples, totals.shared);
    for (const exec::ClientStatus& client : stream.status().clients()) {
      if (!client.word) continue;  // internal
      // Ranks of a group have no rows in common: they are one job.
      const std::string& job = stream.info().delivery == Delivery::kShard ? client.group : client.client;
      out.jobs.push_back({group.streams.size() == 1 ? job : fmt::format("{}/{}", name, job),
                          client.lane.granted, client.lag});
    }
  }
  return out;
}

}  // namespace headrace::server::session
