#include "server/publish/fill_order.h"

#include <algorithm>
#include <bit>
#include <compare>
#include <limits>
#include <utility>

namespace headrace::server::publish {
namespace {

/// Positions change slowly: they are looked at this often.
constexpr std::uint64_t kLookNs = 100'000'000;
/// At each look, what was measured before counts this much less: speeds are those of the last seconds.
constexpr double kFade = 0.9;
/// Nobody waits before speeds are known from so many seconds.
constexpr double kLeastMeasured = 0.5;

/// Speeds change: a smaller gain is not worth a wait.
constexpr double kMargin = 1.03;

constexpr std::uint64_t bit(std::uint32_t lane) {
  return std::uint64_t{1} << lane;
}

/// The least one gets the next slot.
struct Candidate {
  bool waits;
  std::uint64_t row;  ///< if it waits
  std::uint32_t ahead;
  std::uint64_t last_fill;
  std::uint32_t lane;

  friend auto operator<=>(const Candidate&, const Candidate&) = default;
};

}  // namespace

double worthwhile_wait(const Pair& pair) {
  // Without waiting, both have the workers' time in equal parts, and what one does not need is the other's.
  const double fair = pair.decode / 2;
  const double behind_now = std::min(pair.behind, std::max(fair, pair.decode - pair.ahead));
  const double ahead_now = std::min(pair.ahead, pair.decode - behind_now);
  const double behind_alone = std::min(pair.behind, pair.decode);
  if (ahead_now <= 0) return 0;
  // The one ahead ends first. Then the other one has the workers for itself, but for what the window has.
  const double first = pair.rest / ahead_now;
  const double kept = std::min(pair.rest, pair.room);
  const double work = pair.missing + pair.rest - kept;
  const double second = std::max(0.0, work - behind_now * first) / behind_alone + kept / pair.behind;
  // With waiting, both end together, after they have met.
  const double ahead_then = std::min(pair.ahead, pair.decode - behind_alone);
  if (behind_alone <= ahead_then) return 0;  // they never meet
  const double until = pair.missing / (behind_alone - ahead_then);
  const double left = pair.rest - ahead_then * until;
  if (left <= 0) return 0;
  const double wait = 2 * (until + left / std::min({pair.ahead, pair.behind, pair.decode}));
  return kMargin * wait < 2 * first + second ? until * (1 - std::min(1.0, ahead_then / ahead_now)) : 0;
}

std::uint64_t FillOrder::row(std::uint32_t lane) const {
  const Position position = ledger_.position(lane);
  return position.epoch * options_.epoch_rows + position.position;
}

void FillOrder::observe(std::uint64_t now_ns) {
  if (options_.patience_ns == 0) return;
  const double since = seen_ns_ == 0 ? 0 : static_cast<double>(now_ns - seen_ns_) * 1e-9;
  if (starved_ != 0) any_empty_ += since;
  for (std::uint64_t lanes = starved_; lanes != 0; lanes &= lanes - 1)
    empty_[std::countr_zero(lanes)] += since;
  seen_ns_ = now_ns;
  starved_ = 0;
  for (std::uint32_t lane = 0; lane < ledger_.options().lanes; ++lane)
    if (ledger_.is_open(lane) && !ledger_.is_fenced(lane) && ledger_.ahead(lane) == 0) starved_ |= bit(lane);
}

std::span<const std::uint32_t> FillOrder::lanes(std::uint64_t now_ns, const Window& window) {
  std::uint32_t count = 0;
  for (std::uint32_t lane = 0; lane < ledger_.options().lanes; ++lane)
    if (ledger_.is_open(lane)) order_[count++] = lane;
  observe(now_ns);
  if (options_.patience_ns > 0 && now_ns - chosen_ns_ >= kLookNs) {
    measure(static_cast<double>(now_ns - chosen_ns_) * 1e-9);
    choose(window);
    chosen_ns_ = now_ns;
  }
  std::array<Candidate, Ledger::kMaxLanes> candidates;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t lane = order_[i];
    const bool waits = (waiting_ & bit(lane)) != 0;
    candidates[i] = {waits, waits ? row(lane) : 0, ledger_.ahead(lane), last_fill_[lane], lane};
  }
  std::sort(candidates.begin(), candidates.begin() + count);
  std::transform(candidates.begin(), candidates.begin() + count, order_.begin(),
                 [](const Candidate& candidate) { return candidate.lane; });
  return {order_.data(), count};
}

void FillOrder::measure(double seconds) {
  // While every ring has batches, the workers may rest: that says nothing about their speed.
  const double any_empty = std::exchange(any_empty_, 0);
  if (any_empty > 0.1 * seconds) {
    decoded_ = kFade * decoded_ + made_;
    decoding_ = kFade * decoding_ + seconds;
  }
  made_ = 0;
  for (std::uint32_t lane = 0; lane < ledger_.options().lanes; ++lane) {
    Speed& speed = speeds_[lane];
    const double empty = std::exchange(empty_[lane], 0);
    if (!ledger_.is_open(lane)) {
      speed = {};
      continue;
    }
    const std::uint64_t now = row(lane);
    if (speed.row == 0 || now < speed.row) speed = {.row = now};
    speed.rows = kFade * speed.rows + static_cast<double>(now - speed.row);
    speed.busy = kFade * speed.busy + std::max(0.0, seconds - empty);
    speed.row = now;
    if ((waiting_ & bit(lane)) != 0) speed.waited += empty;
  }
}

bool FillOrder::should_wait(std::uint32_t ahead, std::uint32_t behind, const Window& window) const {
  const Ledger::Options& options = ledger_.options();
  // Who waits does so until they meet: otherwise they would stay just too far apart.
  const bool waits = (waiting_ & bit(ahead)) != 0;
  const std::uint32_t near = waits ? 0 : options.max_lag;
  if (ledger_.is_fenced(behind) || ledger_.lag(behind, near + 1) <= near) return false;
  const std::uint64_t from = row(behind), to = row(ahead);
  if (from + window.kept >= to) return false;  // it shares rows, or is not behind
  const std::uint64_t missing = to - from - window.kept;
  // Where rows are kept, the newest may still be in slots.
  if (near > 0 && window.kept > 0 && missing <= batch_rows_ * (ledger_.quota() + near)) return false;
  const Speed &first = speeds_[ahead], &second = speeds_[behind];
  const auto own = [](const Speed& speed) {
    return speed.busy > 0 ? speed.rows / speed.busy : std::numeric_limits<double>::infinity();
  };
  const Pair pair{.missing = static_cast<double>(missing),
                  .rest = static_cast<double>(options_.epoch_rows - ledger_.position(ahead).position),
                  .room = static_cast<double>(window.room),
                  .decode = decoded_ / decoding_,
                  .ahead = own(first),
                  .behind = own(second)};
  const double wait = worthwhile_wait(pair);
  return wait > 0 && first.waited + wait <= static_cast<double>(options_.patience_ns) * 1e-9;
}

void FillOrder::choose(const Window& window) {
  const Ledger::Options& options = ledger_.options();
  std::uint64_t waiting = 0, awaited = 0;
  bool apart = false;
  for (std::uint32_t lane = 0; lane < options.lanes; ++lane) {
    if (!ledger_.is_open(lane) || ledger_.is_fenced(lane)) continue;
    apart = apart || ledger_.lag(lane, options.max_lag + 1) > options.max_lag;
    for (std::uint32_t other = 0; other < options.lanes && decoding_ >= kLeastMeasured; ++other)
      if (other != lane && ledger_.is_open(other) && should_wait(lane, other, window))
        waiting |= bit(lane), awaited |= bit(other);
  }
  if (!apart)
    for (Speed& speed : speeds_) speed.waited = 0;
  waiting_ = waiting;
  awaited_ = awaited;
}

}  // namespace headrace::server::publish
