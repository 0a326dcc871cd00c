#include "server/exec/stream_status.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace headrace::server::exec {
namespace {

constexpr std::uint32_t kMostLag = 1000;

}  // namespace

StreamStatus::StreamStatus(std::string stream, const ring::RingWriter& ring)
    : stream_(std::move(stream)), ring_(ring), lanes_(ring.lane_count()), clients_(ring.lane_count()) {}

bool StreamStatus::stop(const Error& reason) {
  const std::scoped_lock lock(failure_mutex_);
  if (failed()) return false;
  failure_ = reason;
  stop();
  spdlog::error("stream `{}` stopped, until the server is restarted: {}", stream_, reason.to_string());
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

publish::Position StreamStatus::foremost_of_attached() const {
  publish::Position foremost;
  for (std::size_t lane = 0; lane < clients_.size(); ++lane) {
    if (!clients_[lane]) continue;
    const LaneFigures figures = lanes_[lane].load();
    if (!figures.fenced)
      foremost = std::max(foremost, publish::position_of(clients_[lane]->plan, figures.next));
  }
  return foremost;
}

std::vector<ClientStatus> StreamStatus::clients() const {
  const std::scoped_lock lock(clients_mutex_);
  const publish::Position foremost = foremost_of_attached();
  std::vector<ClientStatus> found;
  for (std::uint32_t lane = 0; lane < clients_.size(); ++lane) {
    if (!clients_[lane]) continue;
    const Client& client = *clients_[lane];
    const LaneFigures figures = lanes_[lane].load();
    found.push_back({.client = client.client,
                     .group = client.group,
                     .rank = client.rank,
                     .lag = publish::lag(client.plan, figures.next, foremost, kMostLag),
                     .lane = figures,
                     .word = ring_.client_word(lane)});
  }
  return found;
}

publish::Position StreamStatus::foremost() const {
  const std::scoped_lock lock(clients_mutex_);
  const bool anyone =
      std::any_of(clients_.begin(), clients_.end(), [](const auto& client) { return client.has_value(); });
  return anyone ? foremost_of_attached() : figures_.load().last_detached;
}

}  // namespace headrace::server::exec
