// Ledger: how far lanes are apart, and what follows from it.
#include <algorithm>
#include <utility>

#include "server/publish/ledger.h"

namespace headrace::server::publish {

const Position& Ledger::foremost() const {
  if (!foremost_) {
    foremost_.emplace();
    for (const Lane& lane : lanes_)
      if (lane.plan && !lane.fenced) foremost_ = std::max(*foremost_, position(lane));
  }
  return *foremost_;
}

const Ledger::Lane* Ledger::hindmost() const {
  if (!hindmost_) {
    hindmost_ = nullptr;
    for (const Lane& lane : lanes_)
      if (lane.plan && !lane.fenced && (!*hindmost_ || position(lane) < position(**hindmost_)))
        hindmost_ = &lane;
  }
  return *hindmost_;
}

std::uint32_t Ledger::lag(std::uint32_t lane, std::uint32_t most) const {
  return publish::lag(*lanes_[lane].plan, lanes_[lane].next, foremost(), most);
}

std::uint32_t Ledger::limit(const Lane& lane) const {
  const auto index = static_cast<std::uint32_t>(&lane - lanes_.data());
  return lane.lagging && (favored_ & bit(index)) == 0 ? reserve_ : quota();
}

bool Ledger::too_far_ahead(const sampler::EpochPlan& plan, const Cursor& cursor) const {
  if (end_ && position_of(plan, cursor) >= *end_) return true;
  if (!options_.broadcast || options_.detach) return false;
  const Lane* const behind = hindmost();
  if (!behind) return false;
  const std::uint32_t most =
      std::max(1U, options_.max_lag);  // at most to the end of the hindmost lane's window
  return publish::lag(plan, behind->next, position_of(plan, cursor), most) == most;
}

void Ledger::update_lag(std::uint32_t index) {
  if (!options_.broadcast || !options_.detach) return;
  Lane& lane = lanes_[index];
  const bool begins = falls_behind(index) && !lane.lagging;
  lane.lagging = falls_behind(index);
  if (lane.counted && lag(index, options_.max_lag / 2 + 1) <= options_.max_lag / 2) lane.counted = false;
  if (!begins) return;
  if (!std::exchange(lane.counted, true)) ++detachments_;
  while (lane.pending && held(lane) > limit(lane)) drop_farthest(index);
}

std::uint64_t Ledger::served_by(const Fill& fill) const {
  std::uint64_t served = slots_[fill.slot].pending;
  if (!options_.broadcast) return served;
  // Lanes beyond half of max_lag do not count: they may be detached before they read the batch.
  const std::uint32_t near = std::max(1U, options_.max_lag / 2);
  const bool alone = falls_behind(fill.lane);
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (lane == fill.lane || !is_open(lane)) continue;
    if (options_.detach && lag(lane, near + 1) > near) {
      served &= ~bit(lane);
    } else if (!alone) {
      served |= bit(lane);
    }
  }
  return served;
}

bool Ledger::next_is_ready(std::uint32_t index) const {
  const auto [begin, end] = by_batch_.equal_range(key_of(index, lanes_[index].next));
  return std::any_of(begin, end, [&](const Slot& slot) {
    return slot.state == State::kReady && (slot.pending & bit(index)) != 0;
  });
}

bool Ledger::in_window(const Lane& lane, const Cursor& batch) const {
  const auto ahead = steps(*lane.plan, lane.next, batch);
  return ahead && lane.leased < quota() && *ahead < quota() - lane.leased;  // the sum might overflow
}

}  // namespace headrace::server::publish
