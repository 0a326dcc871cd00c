#include "server/exec/stream_status.h"

#include <fmt/format.h>

#include <algorithm>

#include "clientlib/ring/futex.h"
#include "server/log/log.h"

namespace headrace::server::exec {

StreamStatus::StreamStatus(std::string stream, const ring::RingWriter& ring)
    : stream_(std::move(stream)), ring_(ring), lanes_(ring.lane_count()), clients_(ring.lane_count()) {}

bool StreamStatus::stop(const Error& reason) {
  const std::scoped_lock lock(failure_mutex_);
  if (failed()) return false;
  failure_ = reason;
  mark_failed();
  log::error("stream `{}` stopped, until the server is restarted: {}", stream_, reason.to_string());
  return true;
}

Error StreamStatus::failure() const {
  const std::scoped_lock lock(failure_mutex_);
  return Error{ErrorCode::kStreamFailed, fmt::format("stream `{}` stopped, until the server is restarted: {}",
                                                     stream_, failure_.to_string())};
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
  std::vector<std::uint64_t> since;
  {
    // Only copies: a worker that attaches a client waits for this mutex.
    const std::scoped_lock lock(clients_mutex_);
    for (std::uint32_t lane = 0; lane < clients_.size(); ++lane) {
      if (!clients_[lane]) continue;
      plans.push_back(clients_[lane]->plan);
      since.push_back(clients_[lane]->since_ns);
      found.push_back({.client = clients_[lane]->client,
                       .group = clients_[lane]->group,
                       .rank = clients_[lane]->rank,
                       .lane = lanes_[lane].load(),
                       .word = ring_.client_word(lane)});
    }
  }
  publish::Position foremost;
  double seconds_per_sample = 0;  // of the foremost client
  const std::uint64_t now = ring::monotonic_ns();
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].lane.fenced) continue;
    const publish::Position position = publish::position_of(plans[i], found[i].lane.next);
    if (position < foremost) continue;
    foremost = position;
    seconds_per_sample = static_cast<double>(now - std::min(now, since[i])) * 1e-9 /
                         static_cast<double>(std::max<std::uint64_t>(1, found[i].lane.granted));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    found[i].lag = publish::lag(plans[i], found[i].lane.next, foremost, ClientStatus::kMostLag);
    found[i].lag_seconds =
        found[i].lag * static_cast<double>(plans[i].rows(0, 0, 0).rows) * seconds_per_sample;
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
