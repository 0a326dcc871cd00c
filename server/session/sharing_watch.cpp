#include "server/session/sharing_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "clientlib/base/human.h"

namespace headrace::server::session {
namespace {

constexpr std::uint64_t kIntervalNs = 30'000'000'000;
/// Warn if more than this part of what the other jobs received was decoded beyond what the busiest one
/// received.
constexpr double kTooMuch = 0.5;
/// Positions of the foremost job that are remembered: at four checks a second, of ten minutes or more.
constexpr std::size_t kMostSteps = 2400;
/// Jobs that receive less than this part of the most are idle.
constexpr double kIdle = 0.1;
/// Fewer samples say nothing: they may have been decoded ahead.
constexpr std::uint64_t kFewest = 100;

/// How many of the rows before it the foremost job has received.
std::uint64_t received(const SharingWatch::Figures& figures) {
  std::map<std::string, std::uint64_t> granted;
  std::uint64_t most = 0;
  for (const SharingWatch::Job& job : figures.jobs) most = std::max(most, granted[job.name] += job.granted);
  return std::min(most, *figures.foremost);
}

/// " to 487.0 MB": a window that holds what `furthest` needs until it is where the foremost job is. Empty:
/// the window is as large already, or the distance is not known.
std::string enough(const SharingWatch::Figures& figures, const SharingWatch::Job& furthest) {
  const std::uint64_t bytes = (furthest.rows_behind + figures.ahead) * figures.row_bytes;
  if (furthest.behind >= exec::ClientStatus::kMostLag || bytes <= *figures.window_bytes) return {};
  return " to " + human_bytes(bytes);
}

}  // namespace

SharingWatch::SharingWatch(const std::vector<std::string>& streams, bool broadcast)
    : streams_(fmt::format("stream{} `{}`", streams.size() == 1 ? "" : "s", fmt::join(streams, "`, `"))),
      can_wait_(broadcast && streams.size() == 1) {}

std::optional<SharingWatch::Interval> SharingWatch::last_interval() const {
  const std::scoped_lock lock(mutex_);
  return interval_;
}

SharingWatch::Total SharingWatch::total() const {
  const std::scoped_lock lock(mutex_);
  return total_;
}

std::optional<double> SharingWatch::seconds_since(std::uint64_t now_ns, std::uint64_t row) const {
  const std::scoped_lock lock(mutex_);
  if (path_.empty() || row < begin_row_) return std::nullopt;
  if (row >= path_.back().second) return 0;
  // The first check that found the foremost job beyond.
  const auto beyond =
      std::upper_bound(path_.begin(), path_.end(), row,
                       [](std::uint64_t there, const auto& step) { return there < step.second; });
  return static_cast<double>(now_ns - std::min(now_ns, beyond->first)) *
         1e-9;  // a check may be later than now_ns
}

std::optional<std::string> SharingWatch::check(std::uint64_t now_ns, const Figures& figures) {
  const std::scoped_lock lock(mutex_);
  // If the foremost job left, another one, which was elsewhere, begins a path of its own.
  const bool left = figures.foremost && !path_.empty() && *figures.foremost < path_.back().second;
  if (left || !figures.foremost) path_.clear();
  if (path_.empty() && figures.foremost) begin_row_ = *figures.foremost - (left ? 0 : received(figures));
  if (figures.foremost && (path_.empty() || *figures.foremost != path_.back().second))
    path_.emplace_back(now_ns, *figures.foremost);
  if (path_.size() > kMostSteps) {
    path_.pop_front();
  }
  std::map<std::string, std::uint64_t> granted;
  for (const Job& job : figures.jobs) granted[job.name] += job.granted;
  const bool same_jobs =
      granted.size() == previous_.size() &&
      std::equal(granted.begin(), granted.end(), previous_.begin(),
                 [](const auto& a, const auto& b) { return a.first == b.first && a.second >= b.second; });
  const bool over = same_jobs && !granted.empty() && now_ns - since_ns_ >= kIntervalNs;
  previous_ = granted;
  if (same_jobs && !over) return std::nullopt;

  std::optional<std::string> warning;
  warned_ = warned_ && same_jobs;
  if (over) {
    interval_ = Interval();  // not emplace(), which clang does not find for a nested type with initializers
    Interval& interval = *interval_;
    interval.end_ns = now_ns;
    std::uint64_t most = 0;
    for (const auto& [name, count] : granted) {
      interval.granted += count - granted_[name];
      most = std::max(most, count - granted_[name]);
    }
    const auto active = std::count_if(granted.begin(), granted.end(), [&](const auto& job) {
      return static_cast<double>(job.second - granted_[job.first]) > kIdle * static_cast<double>(most);
    });
    // Other threads count meanwhile: the sum may be older than the one before.
    const std::uint64_t decoded = figures.decoded - std::min(figures.decoded, decoded_);
    const std::uint64_t others = interval.granted - most, beyond = decoded - std::min(decoded, most);
    const bool could_share = active >= 2 && most >= kFewest;
    const bool wasteful = could_share && beyond > figures.ahead &&
                          static_cast<double>(beyond) > kTooMuch * static_cast<double>(others);
    interval.decoded = decoded;
    if (could_share) interval.again = decoded - std::min(decoded, most + (wasteful ? 0 : figures.ahead));
    total_.decoded += interval.decoded;
    total_.again += interval.again;
    if (wasteful && !warned_) {
      const auto furthest =
          std::max_element(figures.jobs.begin(), figures.jobs.end(),
                           [](const Job& a, const Job& b) { return a.rows_behind < b.rows_behind; });
      const bool full = figures.refused > refused_;
      std::string window, remedies = "start the jobs together (sharing.wait_for)";
      if (!figures.window_bytes) {
        window = "; no rows are kept for others (sharing.window: 0B)";
        remedies = "set sharing.window, " + remedies;
      } else if (full) {
        window = fmt::format("; the window ({}) is full", human_bytes(*figures.window_bytes));
        remedies = "raise sharing.window" + enough(figures, *furthest) + ", " + remedies;
      }
      if (can_wait_) remedies += ", set sharing.on_lag: wait";
      warning = fmt::format(
          "{}: samples are decoded more than once: {} in {} s, of which no client was granted more than {}, "
          "because the {} clients are too far apart to share rows{}{}. To share more: {}, or attach late "
          "clients with Loader(join=\"now\"), which skips samples",
          streams_, decoded, (now_ns - since_ns_) / 1'000'000'000, most, active,
          furthest->behind == 0
              ? ""
              : fmt::format("; `{}` is {}{} batches behind", furthest->name,
                            furthest->behind >= exec::ClientStatus::kMostLag ? "at least " : "",
                            furthest->behind),
          window, remedies);
    }
    warned_ = wasteful;
  }
  since_ns_ = now_ns;
  decoded_ = figures.decoded;
  refused_ = figures.refused;
  granted_ = std::move(granted);
  return warning;
}

SharingWatch::Figures sharing_figures(const exec::Engine& engine, const assembly::SharingGroup& group) {
  SharingWatch::Figures out;
  if (group.window) {
    out.foremost = group.window->foremost();
    out.refused = group.window->refused();
    out.window_bytes = group.window->budget();
    out.row_bytes = group.window->row_bytes();
  }
  for (std::size_t i = 0; i < engine.stream_count(); ++i) {
    const exec::Stream& stream = engine.stream(i);
    const std::string& name = stream.info().name;
    if (!group.has(name)) continue;
    out.decoded += engine.totals(i).decoded();
    out.ahead += std::uint64_t{stream.sharing().prefetch} * stream.info().batch_size;
    for (const exec::ClientStatus& client : stream.status().clients()) {
      if (!client.report) continue;  // internal
      // Ranks of a group have no rows in common: they are one job.
      const std::string& job = stream.info().delivery == Delivery::kShard ? client.group : client.client;
      out.jobs.push_back({.name = group.streams.size() == 1 ? job : fmt::format("{}/{}", name, job),
                          .granted = client.lane.granted,
                          .behind = client.sharing_lag,
                          .rows_behind = client.sharing_lag * client.rows_per_batch});
    }
  }
  return out;
}

}  // namespace headrace::server::session
