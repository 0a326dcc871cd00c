#include "server/exec/stream_status.h"

#include <fmt/format.h>

#include <algorithm>

#include "clientlib/ring/futex.h"

namespace headrace::server::exec {
namespace {

/// The client's average pace since its first batch, in seconds for each position of an epoch.
std::optional<double> seconds_per_position(const LaneFigures& lane, const sampler::EpochPlan& plan) {
  constexpr std::uint64_t kLeast = 1'000'000'000;
  const std::uint64_t now = ring::monotonic_ns();
  if (lane.first_grant_ns == 0 || now < lane.first_grant_ns + kLeast) return std::nullopt;
  // A batch of one rank stands for those of all ranks.
  const double batches = static_cast<double>(lane.granted) / plan.rows(0, 0, 0).rows;
  return static_cast<double>(now - lane.first_grant_ns) * 1e-9 /
         (batches * static_cast<double>(plan.consumed(0, 1)));
}

}  // namespace

StreamStatus::StreamStatus(std::string stream, const Failure& failure, const ring::RingWriter& ring,
                           const SampleMaker& maker)
    : stream_(std::move(stream)),
      failure_(failure),
      ring_(ring),
      maker_(maker),
      lanes_(ring.lane_count()),
      clients_(ring.lane_count()) {}

Error StreamStatus::failure() const {
  return Error{ErrorCode::kStreamFailed, fmt::format("stream `{}` stopped, until the server is restarted: {}",
                                                     stream_, failure_.reason().to_string())};
}

std::uint64_t StreamStatus::blocked_ns(const StreamFigures& figures, std::uint64_t now_ns) const {
  std::uint64_t blocked = figures.blocked_ns;
  if (figures.blocked_since_ns) blocked += now_ns - figures.blocked_since_ns;
  std::uint64_t reported = blocked_reported_.load();
  while (reported < blocked && !blocked_reported_.compare_exchange_weak(reported, blocked)) continue;
  return std::max(reported, blocked);
}

void StreamStatus::started(std::uint32_t rank) {
  if (rank < started_.size()) started_[rank].fetch_add(1, std::memory_order_relaxed);
}

std::vector<std::uint64_t> StreamStatus::started_by_rank() const {
  std::vector<std::uint64_t> counts;
  std::size_t highest = 0;
  for (std::size_t rank = 0; rank < started_.size(); ++rank)
    if (started_[rank].load(std::memory_order_relaxed) > 0) highest = rank;
  for (std::size_t rank = 0; rank <= highest; ++rank)
    counts.push_back(started_[rank].load(std::memory_order_relaxed));
  return counts;
}

std::vector<ClientStatus> StreamStatus::clients() const {
  std::vector<ClientStatus> found;
  std::vector<sampler::EpochPlan> plans;
  {
    // Only copies: a worker that attaches a client waits for this mutex.
    const std::scoped_lock lock(clients_mutex_);
    for (std::uint32_t lane = 0; lane < clients_.size(); ++lane) {
      if (!clients_[lane]) continue;
      plans.push_back(clients_[lane]->plan);
      found.push_back({.client = clients_[lane]->client,
                       .group = clients_[lane]->group,
                       .rank = clients_[lane]->rank,
                       .lane = lanes_[lane].load(),
                       .report = ring_.client_report(lane)});
    }
  }
  publish::Position foremost;
  std::optional<std::size_t> leader;  // of those that are foremost, the one that was served longest
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].lane.fenced) continue;
    const publish::Position position = publish::position_of(plans[i], found[i].lane.next);
    if (position < foremost) continue;
    if (!leader || foremost < position || found[i].lane.granted > found[*leader].lane.granted) leader = i;
    foremost = position;
  }
  const auto pace = leader ? seconds_per_position(found[*leader].lane, plans[*leader]) : std::nullopt;
  const auto foremost_of_all = std::max(foremost, maker_.foremost_in_other_streams().value_or(foremost));
  for (std::size_t i = 0; i < found.size(); ++i) {
    ClientStatus& client = found[i];
    const auto behind = [&](const publish::Position& ahead) {
      return publish::lag(plans[i], client.lane.next, ahead, ClientStatus::kMostLag);
    };
    client.rows_per_batch = plans[i].consumed(0, 1);
    if (const RowWindow* const window = maker_.window()) {
      const publish::Position position = publish::position_of(plans[i], client.lane.next);
      client.row = window->number(position.epoch, position.position);
    }
    client.lag = behind(foremost);
    client.sharing_lag = behind(foremost_of_all);
    if (pace) client.lag_seconds = client.lag * static_cast<double>(client.rows_per_batch) * *pace;
  }
  return found;
}

publish::Position StreamStatus::foremost() const {
  const std::scoped_lock lock(clients_mutex_);
  std::optional<publish::Position> foremost;
  for (std::size_t lane = 0; lane < clients_.size(); ++lane) {
    if (!clients_[lane]) continue;
    const publish::Position position = publish::position_of(clients_[lane]->plan, lanes_[lane].load().next);
    foremost = std::max(foremost.value_or(position), position);
  }
  return foremost.value_or(last_detached_);
}

}  // namespace headrace::server::exec
