#include "server/publish/ledger.h"

#include <algorithm>
#include <bit>

#include "clientlib/base/contract.h"

namespace headrace::server::publish {
namespace {

constexpr std::uint64_t bit(std::uint32_t lane) {
  return std::uint64_t{1} << lane;
}

}  // namespace

Cursor normalised(const sampler::EpochPlan& plan, Cursor cursor) {
  if (cursor.batch < plan.length(cursor.origin)) return cursor;
  return Cursor{cursor.epoch + 1, 0, 0};
}

Place place_of(const sampler::EpochPlan& plan, const Cursor& cursor) {
  return {cursor.epoch, plan.consumed(cursor.origin, cursor.batch)};
}

Cursor advance(const sampler::EpochPlan& plan, Cursor cursor) {
  ++cursor.batch;
  return normalised(plan, cursor);
}

Ledger::Ledger(const Options& options)
    : options_(options),
      reserve_(options.broadcast ? options.max_leases : options.max_leases + options.prefetch),
      slots_(slots_needed(options)),
      lanes_(options.lanes) {
  require(options.lanes >= 1 && options.lanes <= kMaxLanes, "between 1 and 64 lanes");
  require(options.max_leases >= 1, "at least one lease");
  freed_.reserve(slots_.size());  // so that a slot is not lost for want of memory
}

std::uint32_t Ledger::slots_needed(const Options& options) {
  return options.broadcast ? options.prefetch + options.lanes * options.max_leases
                           : options.lanes * (options.max_leases + options.prefetch);
}

void Ledger::open(std::uint32_t lane, const sampler::EpochPlan* plan, const Cursor& cursor) {
  require(!is_open(lane), "open of an open lane");
  const std::uint32_t seek = lanes_[lane].seek + 1;
  lanes_[lane] = Lane{};
  lanes_[lane].plan = plan;
  lanes_[lane].next = normalised(*plan, cursor);
  lanes_[lane].seek = seek;
  if (options_.broadcast && !options_.detach) join_existing(lane);
}

std::uint32_t Ledger::close(std::uint32_t lane) {
  const std::uint32_t reclaimed = lanes_[lane].leased;
  cancel_pending(lane);
  for (Slot& slot : slots_) {
    if (!(slot.leased & bit(lane))) continue;
    slot.leased &= ~bit(lane);
    free_if_unwanted(slot);
  }
  lanes_[lane].leased = 0;
  lanes_[lane].plan = nullptr;
  return reclaimed;
}

void Ledger::fence(std::uint32_t lane) {
  cancel_pending(lane);
  lanes_[lane].fenced = true;
}

std::uint32_t Ledger::seek(std::uint32_t lane, const Cursor& cursor) {
  cancel_pending(lane);
  lanes_[lane].next = normalised(*lanes_[lane].plan, cursor);
  return ++lanes_[lane].seek;
}

std::uint32_t Ledger::lag(std::uint32_t lane, std::uint32_t most) const {
  const sampler::EpochPlan& plan = *lanes_[lane].plan;
  Place foremost = place(lanes_[lane]);
  for (const Lane& other : lanes_)
    if (other.plan && !other.fenced) foremost = std::max(foremost, place(other));
  std::uint32_t steps = 0;
  for (Cursor at = lanes_[lane].next; place_of(plan, at) < foremost && steps < most; ++steps)
    at = advance(plan, at);
  return steps;
}

std::uint32_t Ledger::ahead(std::uint32_t lane) const {
  std::uint32_t ready = lanes_[lane].leased;
  for (const Slot& slot : slots_)
    if (slot.state == State::kReady && slot.pending & bit(lane)) ++ready;
  return ready;
}

BatchKey Ledger::key_of(std::uint32_t lane, const Cursor& cursor) const {
  return BatchKey{cursor, options_.broadcast ? BatchKey::kEveryone : lane};
}

Ledger::Slot* Ledger::find(const BatchKey& key, std::uint32_t lane) {
  Slot* other = nullptr;
  for (Slot& slot : slots_) {
    if (slot.state == State::kFree || slot.leased & bit(lane) || slot.key != key) continue;
    if (slot.pending & bit(lane)) return &slot;
    if (!other) other = &slot;
  }
  return other;
}

bool Ledger::holds(const BatchKey& key) const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [&](const Slot& slot) { return slot.state != State::kFree && slot.key == key; });
}

std::uint32_t Ledger::limit(const Lane& lane) const {
  return lane.lagging ? reserve_ : quota();
}

std::optional<Ledger::Fill> Ledger::take_fill(std::uint32_t index) {
  Lane& lane = lanes_[index];
  if (!lane.plan || lane.fenced) return std::nullopt;
  update_lag(index);
  // A cursor's window never holds the same batch twice: an epoch has at least one batch and epochs differ.
  Cursor cursor = lane.next;
  const std::uint32_t window = quota() - std::min(quota(), lane.leased);
  for (std::uint32_t i = 0; i < window; ++i, cursor = advance(*lane.plan, cursor)) {
    const BatchKey key = key_of(index, cursor);
    if (Slot* slot = find(key, index)) {
      if (slot->pending & bit(index)) continue;
      if (!make_room(index, cursor)) return std::nullopt;
      slot->pending |= bit(index);
      ++lane.pending;
      continue;
    }
    if (too_far_ahead(*lane.plan, cursor) || !make_room(index, cursor)) return std::nullopt;
    Slot* slot = allocate(index);
    // Batches farther away, which others built, may be all that it holds: then it is not entitled to a slot
    // for its next one, without which it never goes on.
    while (!slot && i == 0 && options_.broadcast && options_.detach && freed_.empty() &&
           lane.leased < reserve_ && held(lane) >= reserve_) {
      drop_pending(index, *farthest_pending(index));
      if (freed_.empty()) slot = allocate(index);
    }
    if (!slot) return std::nullopt;
    slot->state = State::kFilling;
    slot->key = key;
    slot->pending = bit(index);
    ++lane.pending;
    join_others(*slot);
    return Fill{static_cast<std::uint32_t>(slot - slots_.data()), key, index};
  }
  return std::nullopt;
}

Ledger::Slot* Ledger::farthest_pending(std::uint32_t index) {
  Slot* farthest = nullptr;
  for (Slot& slot : slots_)
    if (slot.pending & bit(index) && (!farthest || farthest->key.cursor < slot.key.cursor)) farthest = &slot;
  return farthest;
}

bool Ledger::make_room(std::uint32_t index, const Cursor& cursor) {
  const Lane& lane = lanes_[index];
  while (held(lane) >= limit(lane)) {
    Slot* farthest = farthest_pending(index);
    if (!farthest || farthest->key.cursor <= cursor) return false;
    drop_pending(index, *farthest);
  }
  return true;
}

void Ledger::join_others(Slot& slot) {
  if (!options_.broadcast) return;
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (!lane.plan || lane.fenced || slot.pending & bit(index) || held(lane) >= limit(lane)) continue;
    Cursor cursor = lane.next;
    for (std::uint32_t i = lane.leased; i < quota() && cursor < slot.key.cursor; ++i)
      cursor = advance(*lane.plan, cursor);
    if (cursor != slot.key.cursor) continue;
    slot.pending |= bit(index);
    ++lane.pending;
  }
}

void Ledger::join_existing(std::uint32_t index) {
  Lane& lane = lanes_[index];
  Cursor cursor = lane.next;
  for (std::uint32_t i = 0; i < quota(); ++i, cursor = advance(*lane.plan, cursor)) {
    Slot* slot = find(key_of(index, cursor), index);
    if (!slot) continue;
    slot->pending |= bit(index);
    ++lane.pending;
  }
}

Ledger::Slot* Ledger::allocate(std::uint32_t index) {
  std::uint32_t free = 0, owed = 0;
  Slot* first = nullptr;
  for (Slot& slot : slots_) {
    // A slot freed since the last take_freed() is still READY in the ring: not to be taken before that call.
    const bool in_transit = std::find(freed_.begin(), freed_.end(),
                                      static_cast<std::uint32_t>(&slot - slots_.data())) != freed_.end();
    if (slot.state != State::kFree || in_transit) continue;
    ++free;
    if (!first) first = &slot;
  }
  if (held(lanes_[index]) < reserve_) return first ? first : reclaim(index);
  for (std::uint32_t other = 0; other < lanes_.size(); ++other)
    if (other != index) owed += reserve_ - std::min(reserve_, held(lanes_[other]));
  return free > owed ? first : nullptr;
}

/// The lane is entitled to a slot and none is free, because lanes with shared slots hold more than their
/// reserve: take back the farthest batch that nobody has in hands yet. It will be built again.
/// Lanes within their reserve keep theirs: they would take the slot back at once, and neither would get on.
/// If none can be taken, fills under way hold the slots; they end.
Ledger::Slot* Ledger::reclaim(std::uint32_t index) {
  if (options_.broadcast && !options_.detach) return nullptr;
  std::uint64_t entitled = 0;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (held(lanes_[lane]) <= reserve_) entitled |= bit(lane);
  const sampler::EpochPlan& plan = *lanes_[index].plan;
  Slot* farthest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.state != State::kReady || slot.leased || slot.pending & entitled) continue;
    if (!farthest || place_of(plan, farthest->key.cursor) < place_of(plan, slot.key.cursor)) farthest = &slot;
  }
  if (!farthest) return nullptr;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (farthest->pending & bit(lane)) drop_pending(lane, *farthest);
  ++detachments_;
  return nullptr;  // free after the next take_freed()
}

void Ledger::drop_pending(std::uint32_t lane, Slot& slot) {
  slot.pending &= ~bit(lane);
  --lanes_[lane].pending;
  free_if_unwanted(slot);
}

void Ledger::cancel_pending(std::uint32_t lane) {
  for (Slot& slot : slots_)
    if (slot.pending & bit(lane)) drop_pending(lane, slot);
}

void Ledger::free_if_unwanted(Slot& slot) {
  if (slot.state != State::kReady || slot.pending || slot.leased) return;
  slot.state = State::kFree;
  freed_.push_back(static_cast<std::uint32_t>(&slot - slots_.data()));
}

bool Ledger::too_far_ahead(const sampler::EpochPlan& plan, const Cursor& cursor) const {
  if (end_ && place_of(plan, cursor) >= *end_) return true;
  if (!options_.broadcast || options_.detach) return false;
  const Place wanted = place_of(plan, cursor);
  const Lane* hindmost = nullptr;
  for (const Lane& lane : lanes_)
    if (lane.plan && !lane.fenced && (!hindmost || place(lane) < place(*hindmost))) hindmost = &lane;
  if (!hindmost) return false;
  const std::uint32_t most =
      std::max(1U, options_.max_lag);  // no further than the hindmost lane's window reaches
  std::uint32_t steps = 0;
  for (Cursor at = hindmost->next; place_of(plan, at) < wanted && steps < most; ++steps)
    at = advance(plan, at);
  return steps == most;
}

void Ledger::update_lag(std::uint32_t index) {
  if (!options_.broadcast || !options_.detach) return;
  Lane& lane = lanes_[index];
  const bool lagging = lag(index, options_.max_lag + 1) > options_.max_lag;
  if (lagging && !lane.lagging) ++detachments_;
  lane.lagging = lagging;
  if (!lagging) return;
  while (lane.pending && held(lane) > reserve_) drop_pending(index, *farthest_pending(index));
}

bool Ledger::filled(std::uint32_t index) {
  Slot& slot = slots_[index];
  require(slot.state == State::kFilling, "filled() of a slot that nobody fills");
  slot.state = slot.pending ? State::kReady : State::kFree;
  return slot.state == State::kReady;
}

void Ledger::discard(std::uint32_t index) {
  Slot& slot = slots_[index];
  require(slot.state == State::kFilling, "discard() of a slot that nobody fills");
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (slot.pending & bit(lane)) drop_pending(lane, slot);
  slot.state = State::kFree;
}

void Ledger::take_grants(std::vector<Order>& out) {
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (!lane.plan || lane.fenced) continue;
    update_lag(index);
    while (lane.leased < options_.max_leases && lane.pending) {
      Slot* slot = find(key_of(index, lane.next), index);
      if (!slot || slot->state != State::kReady || !(slot->pending & bit(index))) break;
      slot->pending &= ~bit(index);
      slot->leased |= bit(index);
      --lane.pending;
      ++lane.leased;
      lane.next = advance(*lane.plan, lane.next);
      out.push_back({index, static_cast<std::uint32_t>(slot - slots_.data()), lane.seek});
    }
  }
}

bool Ledger::ack(std::uint32_t lane, std::uint32_t slot) {
  if (slot >= slots_.size() || !(slots_[slot].leased & bit(lane))) return false;
  slots_[slot].leased &= ~bit(lane);
  --lanes_[lane].leased;
  free_if_unwanted(slots_[slot]);
  return true;
}

void Ledger::take_freed(std::vector<std::uint32_t>& out) {
  out.insert(out.end(), freed_.begin(), freed_.end());
  freed_.clear();
}

Ledger::Counts Ledger::counts() const {
  Counts counts;
  for (const Slot& slot : slots_) {
    if (slot.state == State::kFree)
      ++counts.free;
    else if (slot.state == State::kFilling)
      ++counts.filling;
    else if (slot.leased)
      ++counts.leased;
    else
      ++counts.ready;
  }
  return counts;
}

void Ledger::check() const {
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    std::uint32_t pending = 0, leased = 0;
    for (const Slot& slot : slots_) {
      pending += (slot.pending & bit(index)) != 0;
      leased += (slot.leased & bit(index)) != 0;
    }
    const Lane& lane = lanes_[index];
    require(pending == lane.pending && leased == lane.leased, "lane counts differ from the slots");
    require(lane.leased <= options_.max_leases, "more leases than max_leases");
    require(lane.plan || held(lane) == 0, "a closed lane holds slots");
  }
  for (const Slot& slot : slots_) {
    require((slot.pending & slot.leased) == 0, "a lane both waits for a slot and holds it");
    require(slot.state != State::kFree || (slot.pending | slot.leased) == 0, "a free slot has holders");
    require(slot.state != State::kFilling || slot.leased == 0, "a slot is filled while leased");
    require(slot.state != State::kReady || (slot.pending | slot.leased) != 0,
            "a ready slot without holders was not freed");
    if (!options_.broadcast)
      require(std::popcount(slot.pending | slot.leased) <= 1, "a shard's slot has two holders");
  }
}

}  // namespace headrace::server::publish
