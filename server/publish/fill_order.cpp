#include "server/publish/fill_order.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <compare>
#include <limits>
#include <utility>

namespace headrace::server::publish {
namespace {

/// Positions change slowly: they are compared this often.
constexpr std::uint64_t kCheckNs = 100'000'000;
/// Decay per check: speeds are those of the last seconds. A client's own speed decays only while it has a
/// batch: else little would be left of it after a long wait, and a moment that counts as busy (its process
/// checks for signals) would make it look slow.
constexpr double kFade = 0.9;
/// Seconds of measurement before any lane may yield.
constexpr double kLeastMeasured = 0.5;

/// Speeds change: a smaller gain is not worth a wait. One that has begun goes on for less.
constexpr double kStartMargin = 1.03, kContinueMargin = 1;

/// Fills in a row for lanes whose rows the window has.
constexpr std::uint32_t kMostKeptFills = 4;

constexpr std::uint64_t bit(std::uint32_t lane) {
  return std::uint64_t{1} << lane;
}

/// The smallest one gets the next slot.
struct Candidate {
  bool waits;
  std::uint64_t row;  ///< if it waits
  bool decodes;       ///< the window does not have its next rows
  std::uint32_t ahead;
  std::uint64_t last_fill;
  std::uint32_t lane;

  friend auto operator<=>(const Candidate&, const Candidate&) = default;
};

}  // namespace

double worthwhile_wait(const FarApart& clients, double margin) {
  // Without waiting, both have the workers' time in equal parts, and what one does not need is the other's.
  const double fair = clients.made / 2;
  const double behind_now = std::min(clients.behind, std::max(fair, clients.made - clients.ahead));
  const double ahead_now = std::min(clients.ahead, clients.made - behind_now);
  const double behind_alone = std::min(clients.behind, clients.made);
  if (ahead_now <= 0) return 0;
  // The one ahead ends first. Then the other one has the workers for itself, but for what the window has.
  const double first = clients.rest / ahead_now;
  const double kept = std::min(clients.rest, clients.room);
  const double work = clients.missing + clients.rest - kept;
  const double second = std::max(0.0, work - behind_now * first) / behind_alone + kept / clients.behind;
  // With waiting, both end together, after they have met.
  const double ahead_then = std::min(clients.ahead, clients.made - behind_alone);
  if (behind_alone <= ahead_then) return 0;  // they never meet
  const double until = clients.missing / (behind_alone - ahead_then);
  const double left = clients.rest - ahead_then * until;
  if (left <= 0) return 0;
  const double wait = 2 * (until + left / std::min({clients.ahead, clients.behind, clients.made}));
  return margin * wait < 2 * first + second ? until * (1 - std::min(1.0, ahead_then / ahead_now)) : 0;
}

std::uint64_t FillOrder::row(std::uint32_t lane) const {
  const Position position = ledger_.position(lane);
  // A client may ask for any epoch.
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() / options_.epoch_rows - 1;
  return std::min(position.epoch, most) * options_.epoch_rows + position.position;
}

void FillOrder::forget(std::uint32_t lane) {
  speeds_[lane] = {};
  empty_[lane] = 0;
  starved_ &= ~bit(lane);
  waiting_ = awaited_ = 0;  // decided anew at the next check
}

void FillOrder::pause() {
  if (std::exchange(seen_ns_, 0) == 0) return;
  checked_ns_ = starved_ = 0;
  made_ = any_empty_ = 0;
  empty_ = {};
  for (Speed& speed : speeds_) speed.row.reset();
}

void FillOrder::update(std::uint64_t now_ns, const Window& window, std::uint64_t starved) {
  if (!lets_yield()) return;
  const double since = seen_ns_ == 0 ? 0 : static_cast<double>(now_ns - seen_ns_) * 1e-9;
  if (starved_ != 0) any_empty_ += since;
  for (std::uint64_t lanes = starved_; lanes != 0; lanes &= lanes - 1)
    empty_[std::countr_zero(lanes)] += since;
  seen_ns_ = now_ns;
  starved_ = starved;
  if (now_ns - checked_ns_ < kCheckNs) return;
  // The first check only begins the measurement.
  if (checked_ns_ != 0) {
    measure(static_cast<double>(now_ns - checked_ns_) * 1e-9);
    choose(window);
  }
  checked_ns_ = now_ns;
}

std::span<const std::uint32_t> FillOrder::lanes(std::uint64_t kept) {
  kept_ = kept_fills_ < kMostKeptFills ? kept : 0;
  std::uint32_t count = 0;
  std::array<Candidate, Ledger::kMaxLanes> candidates;
  for (std::uint32_t lane = 0; lane < ledger_.options().lanes; ++lane) {
    if (!ledger_.is_open(lane)) continue;
    const bool waits = (waiting_ & bit(lane)) != 0;
    candidates[count++] = {
        waits, waits ? row(lane) : 0, (kept_ & bit(lane)) == 0, ledger_.ahead(lane), last_fill_[lane], lane};
  }
  std::sort(candidates.begin(), candidates.begin() + count);
  std::transform(candidates.begin(), candidates.begin() + count, order_.begin(),
                 [](const Candidate& candidate) { return candidate.lane; });
  return {order_.data(), count};
}

void FillOrder::measure(double seconds) {
  // While every client has a batch, the workers may rest: that says nothing about their speed.
  const double any_empty = std::exchange(any_empty_, 0);
  if (any_empty > 0.1 * seconds) {
    made_lately_ = kFade * made_lately_ + made_;
    seconds_ = kFade * seconds_ + seconds;
  }
  made_ = 0;
  for (std::uint32_t lane = 0; lane < ledger_.options().lanes; ++lane) {
    Speed& speed = speeds_[lane];
    const double empty = std::exchange(empty_[lane], 0);
    if (!ledger_.is_open(lane)) continue;
    const std::uint64_t now = row(lane);
    if (speed.row && now < *speed.row) speed = {};
    if (!speed.row) speed.row = now;
    const double busy = std::max(0.0, seconds - empty);
    const double fade = std::pow(kFade, busy / seconds);
    speed.rows = fade * speed.rows + static_cast<double>(now - *speed.row);
    speed.busy = fade * speed.busy + busy;
    speed.row = now;
    if ((waiting_ & bit(lane)) != 0) speed.waited += empty;
  }
}

bool FillOrder::should_wait(std::uint32_t ahead, std::uint32_t behind, const Window& window) const {
  if (ledger_.is_fenced(behind)) return false;
  const std::uint64_t from = row(behind), to = row(ahead);
  // Hysteresis: a lane that yields continues until they meet; otherwise they would stay just too far apart.
  const bool waits = (waiting_ & bit(ahead)) != 0;
  const std::uint64_t near = waits ? 0 : batch_rows_ * ledger_.options().max_lag;
  if (from + window.kept + near >= to) return false;  // they share rows, or it is not behind
  const std::uint64_t missing = to - from - window.kept;
  // Where rows are kept, the newest may still be in slots.
  if (!waits && window.kept > 0 && missing <= near + batch_rows_ * ledger_.quota()) return false;
  const Speed &first = speeds_[ahead], &second = speeds_[behind];
  const auto own = [](const Speed& speed) {
    return speed.busy > 0 ? speed.rows / speed.busy : std::numeric_limits<double>::infinity();
  };
  const double wait =
      worthwhile_wait({.missing = static_cast<double>(missing),
                       .rest = static_cast<double>(options_.epoch_rows - ledger_.position(ahead).position),
                       .room = static_cast<double>(window.room),
                       .made = made_lately_ / seconds_,
                       .ahead = own(first),
                       .behind = own(second)},
                      waits ? kContinueMargin : kStartMargin);
  return wait > 0 && first.waited + wait <= static_cast<double>(options_.patience_ns) * 1e-9;
}

void FillOrder::choose(const Window& window) {
  const Ledger::Options& options = ledger_.options();
  std::uint64_t waiting = 0, awaited = 0;
  for (std::uint32_t lane = 0; lane < options.lanes; ++lane) {
    if (!ledger_.is_open(lane) || ledger_.is_fenced(lane)) continue;
    bool apart = false;
    for (std::uint32_t other = 0; other < options.lanes; ++other) {
      if (other == lane || !ledger_.is_open(other) || ledger_.is_fenced(other)) continue;
      apart = apart || row(other) + batch_rows_ * options.max_lag < row(lane);
      if (seconds_ >= kLeastMeasured && should_wait(lane, other, window))
        waiting |= bit(lane), awaited |= bit(other);
    }
    if (!apart) speeds_[lane].waited = 0;
  }
  waiting_ = waiting;
  awaited_ = awaited;
}

}  // namespace headrace::server::publish
