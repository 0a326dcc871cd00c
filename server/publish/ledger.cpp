#include "server/publish/ledger.h"

#include <algorithm>
#include <bit>
#include <boost/container_hash/hash.hpp>

#include "clientlib/base/contract.h"

namespace headrace::server::publish {
std::size_t hash_value(const BatchKey& key) {
  std::size_t hash = 0;
  boost::hash_combine(hash, key.cursor.epoch);
  boost::hash_combine(hash, key.cursor.origin);
  boost::hash_combine(hash, key.cursor.batch);
  boost::hash_combine(hash, key.owner);
  return hash;
}

Ledger::Ledger(const Options& options)
    : options_(options),
      reserve_(options.broadcast ? options.max_leases : options.max_leases + options.prefetch),
      slots_(slots_needed(options)),
      buckets_(std::bit_ceil(slots_.size())),
      by_batch_({buckets_.data(), buckets_.size()}),
      lanes_(options.lanes),
      idle_((slots_.size() + 63) / 64) {
  require(options.lanes >= 1 && options.lanes <= kMaxLanes, "between 1 and 64 lanes");
  require(options.max_leases >= 1, "at least one lease");
  freed_.reserve(slots_.size());  // so that freeing a slot cannot fail
  provide(1);
}

void Ledger::provide(std::uint32_t lanes) {
  require(lanes <= options_.lanes, "no more lanes than the ring has");
  if (lanes <= provided_) return;
  const std::uint32_t have = provided_ == 0 ? 0 : slots_needed(options_, provided_);
  const std::uint32_t wanted = slots_needed(options_, lanes);
  for (std::uint32_t slot = have; slot < wanted; ++slot) make_idle(slots_[slot]);
  counts_.free += wanted - have;
  owed_ += std::uint64_t{reserve_} * (lanes - provided_);
  provided_ = lanes;
}

void Ledger::hold(Lane& lane, int pending, int leased) {
  owed_ -= missing(lane);
  lane.pending += pending;
  lane.leased += leased;
  owed_ += missing(lane);
}

void Ledger::join(std::uint32_t lane, Slot& slot) {
  slot.pending |= bit(lane);
  hold(lanes_[lane], +1, 0);
  lanes_[lane].ready += slot.state == State::kReady;
}

void Ledger::take_slot(Slot& slot, const BatchKey& key) {
  idle_[number(slot) / 64] &= ~bit(number(slot) % 64);
  --idle_slots_;
  slot.state = State::kFilling;
  --counts_.free;
  ++counts_.filling;
  slot.key = key;
  by_batch_.insert(slot);
}

void Ledger::make_idle(Slot& slot) {
  idle_[number(slot) / 64] |= bit(number(slot) % 64);
  ++idle_slots_;
}

void Ledger::end_lease(std::uint32_t lane, Slot& slot) {
  slot.leased &= ~bit(lane);
  hold(lanes_[lane], 0, -1);
  if (slot.leased == 0) {
    --counts_.leased;
    ++counts_.ready;
  }
  free_if_unwanted(slot);
}

void Ledger::move(Lane& lane, const Cursor& next) {
  if (hindmost_ && *hindmost_ && position(lane) == position(**hindmost_)) hindmost_.reset();
  lane.next = next;
  if (foremost_) foremost_ = std::max(*foremost_, position(lane));
}

std::uint32_t Ledger::slots_needed(const Options& options, std::uint32_t lanes) {
  return options.broadcast ? options.prefetch + lanes * options.max_leases
                           : lanes * (options.max_leases + options.prefetch);
}

void Ledger::open(std::uint32_t lane, const sampler::EpochPlan* plan, const Cursor& cursor) {
  require(!is_open(lane), "open of an open lane");
  require(std::ranges::count_if(lanes_, [](const Lane& it) { return it.plan != nullptr; }) < provided_,
          "there must be slots for the lane");
  const std::uint32_t seek = lanes_[lane].seek + 1;
  lanes_[lane] = Lane{};
  lanes_[lane].plan = plan;
  if (!options_.broadcast) lanes_[lane].owner = ++openings_;
  lanes_[lane].next = normalized(*plan, cursor);
  lanes_[lane].seek = seek;
  positions_changed();
  if (options_.broadcast && !options_.detach) join_existing(lane);
}

std::uint32_t Ledger::close(std::uint32_t lane) {
  const std::uint32_t reclaimed = lanes_[lane].leased;
  cancel_pending(lane);
  for (Slot& slot : slots_)
    if (slot.leased & bit(lane)) end_lease(lane, slot);
  lanes_[lane].plan = nullptr;
  positions_changed();
  return reclaimed;
}

void Ledger::fence(std::uint32_t lane) {
  cancel_pending(lane);
  lanes_[lane].fenced = true;
  positions_changed();
}

std::uint32_t Ledger::seek(std::uint32_t lane, const Cursor& cursor) {
  cancel_pending(lane);
  lanes_[lane].next = normalized(*lanes_[lane].plan, cursor);
  positions_changed();
  return ++lanes_[lane].seek;
}

BatchKey Ledger::key_of(std::uint32_t lane, const Cursor& cursor) const {
  return BatchKey{cursor, lanes_[lane].owner};
}

Ledger::Slot* Ledger::find(const BatchKey& key, std::uint32_t lane) {
  Slot* other = nullptr;
  const auto [begin, end] = by_batch_.equal_range(key);
  for (auto slot = begin; slot != end; ++slot) {
    if (slot->leased & bit(lane)) continue;
    if (slot->pending & bit(lane)) return &*slot;
    // The first of them in the ring, in whatever order they were filled.
    if (!other || &*slot < other) other = &*slot;
  }
  return other;
}

bool Ledger::holds(const BatchKey& key) const {
  return by_batch_.find(key) != by_batch_.end();
}

std::optional<Ledger::Fill> Ledger::take_fill(std::uint32_t index) {
  Lane& lane = lanes_[index];
  if (!lane.plan || lane.fenced) return std::nullopt;
  update_lag(index);
  // A window never contains the same batch twice: an epoch has at least one batch, and epochs differ.
  Cursor cursor = lane.next;
  const std::uint32_t window = quota() - std::min(quota(), lane.leased);
  if (lane.pending == window) return std::nullopt;  // all of it: a lane waits only for batches in its window
  for (std::uint32_t i = 0; i < window; ++i, cursor = advance(*lane.plan, cursor)) {
    const BatchKey key = key_of(index, cursor);
    if (Slot* slot = find(key, index)) {
      if (slot->pending & bit(index)) continue;
      if (!make_room(index, cursor)) return std::nullopt;
      join(index, *slot);
      continue;
    }
    if (too_far_ahead(*lane.plan, cursor) || !make_room(index, cursor)) return std::nullopt;
    Slot* slot = allocate(index);
    // If the lane holds only batches farther away, which other lanes built, it has no right to a slot for its
    // next batch, and without that batch it never continues.
    while (!slot && i == 0 && options_.broadcast && freed_.empty() && lane.leased < reserve_ &&
           held(lane) >= reserve_) {
      drop_farthest(index);
      if (freed_.empty()) slot = allocate(index);
    }
    if (!slot) return std::nullopt;
    take_slot(*slot, key);
    join(index, *slot);
    join_others(*slot);
    return Fill{number(*slot), key, index};
  }
  return std::nullopt;
}

std::optional<Cursor> Ledger::first_missing(std::uint32_t index) const {
  const Lane& lane = lanes_[index];
  if (lane.pending + lane.leased >= quota()) return std::nullopt;
  Cursor cursor = lane.next;
  for (std::uint32_t i = lane.leased; i < quota(); ++i, cursor = advance(*lane.plan, cursor))
    if (!holds(key_of(index, cursor))) return cursor;
  return std::nullopt;
}

Ledger::Slot* Ledger::farthest_pending(std::uint32_t index) {
  const Lane& lane = lanes_[index];
  Slot* farthest = nullptr;
  Cursor cursor = lane.next;
  for (std::uint32_t found = 0, i = lane.leased; found < lane.pending && i < quota(); ++i) {
    Slot* const slot = find(key_of(index, cursor), index);
    if (slot && slot->pending & bit(index)) {
      farthest = slot;
      ++found;
    }
    cursor = advance(*lane.plan, cursor);
  }
  return farthest;
}

void Ledger::drop_farthest(std::uint32_t index) {
  Slot* const farthest = farthest_pending(index);
  require(farthest, "a lane waits for a batch beyond its window");
  drop_pending(index, *farthest);
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
  // After a seek back another slot may carry the batch, and lanes wait for that one.
  const bool only_one = by_batch_.count(slot.key) == 1;
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    const Lane& lane = lanes_[index];
    if (!lane.plan || lane.fenced || slot.pending & bit(index) || held(lane) >= limit(lane)) continue;
    if (!in_window(lane, slot.key.cursor)) continue;
    if (!only_one && find(slot.key, index)->pending & bit(index)) continue;
    join(index, slot);
  }
}

void Ledger::join_existing(std::uint32_t index) {
  const Lane& lane = lanes_[index];
  Cursor cursor = lane.next;
  for (std::uint32_t i = 0; i < quota(); ++i, cursor = advance(*lane.plan, cursor)) {
    if (Slot* slot = find(key_of(index, cursor), index)) join(index, *slot);
  }
}

Ledger::Slot* Ledger::allocate(std::uint32_t index) {
  Slot* first = nullptr;  // the lowest, which is most likely in the CPU caches
  for (std::size_t word = 0; word < idle_.size() && !first; ++word)
    if (idle_[word]) first = &slots_[word * 64 + std::countr_zero(idle_[word])];
  if (missing(lanes_[index]) > 0) return first ? first : reclaim(index);
  // This lane has its reserve: all idle slots are owed to others.
  return idle_slots_ > owed_ ? first : nullptr;
}

/// The lane is entitled to a slot but none is free, because lanes with shared slots hold more than their
/// reserve: reclaims the farthest batch that no lane has leased yet. It will be built again. Lanes within
/// their reserve keep theirs: otherwise they would reclaim the slot at once, and neither lane would make
/// progress. If none can be reclaimed, the slots are being filled, which ends.
Ledger::Slot* Ledger::reclaim(std::uint32_t index) {
  std::uint64_t entitled = 0;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (held(lanes_[lane]) <= reserve_) entitled |= bit(lane);
  const sampler::EpochPlan& plan = *lanes_[index].plan;
  Slot* farthest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.state != State::kReady || slot.leased || slot.pending & entitled) continue;
    if (!farthest || position_of(plan, farthest->key.cursor) < position_of(plan, slot.key.cursor))
      farthest = &slot;
  }
  if (!farthest) return nullptr;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (farthest->pending & bit(lane)) drop_pending(lane, *farthest);
  return nullptr;  // it is free after the next take_freed()
}

void Ledger::drop_pending(std::uint32_t lane, Slot& slot) {
  slot.pending &= ~bit(lane);
  hold(lanes_[lane], -1, 0);
  lanes_[lane].ready -= slot.state == State::kReady;
  free_if_unwanted(slot);
}

void Ledger::cancel_pending(std::uint32_t lane) {
  for (Slot& slot : slots_)
    if (slot.pending & bit(lane)) drop_pending(lane, slot);
}

void Ledger::free_if_unwanted(Slot& slot) {
  if (slot.state != State::kReady || slot.pending || slot.leased) return;
  slot.state = State::kFree;
  --counts_.ready;
  ++counts_.free;
  by_batch_.erase(by_batch_.iterator_to(slot));
  freed_.push_back(number(slot));
}

bool Ledger::filled(std::uint32_t index) {
  Slot& slot = slots_[index];
  require(slot.state == State::kFilling, "filled() of a slot that nobody fills");
  if (!slot.pending) {
    discard(index);
    return false;
  }
  slot.state = State::kReady;
  --counts_.filling;
  ++counts_.ready;
  for (std::uint64_t lanes = slot.pending; lanes != 0; lanes &= lanes - 1)
    ++lanes_[std::countr_zero(lanes)].ready;
  return true;
}

void Ledger::discard(std::uint32_t index) {
  Slot& slot = slots_[index];
  require(slot.state == State::kFilling, "discard() of a slot that nobody fills");
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (slot.pending & bit(lane)) drop_pending(lane, slot);
  slot.state = State::kFree;
  --counts_.filling;
  ++counts_.free;
  by_batch_.erase(by_batch_.iterator_to(slot));
  make_idle(slot);
}

void Ledger::take_grants(std::vector<Order>& out) {
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (!lane.plan || lane.fenced) continue;
    update_lag(index);
    while (lane.leased < options_.max_leases && lane.pending) {
      Slot* slot = find(key_of(index, lane.next), index);
      if (!slot || slot->state != State::kReady || !(slot->pending & bit(index))) break;
      if (slot->leased == 0) {
        --counts_.ready;
        ++counts_.leased;
      }
      slot->pending &= ~bit(index);
      slot->leased |= bit(index);
      hold(lane, -1, +1);
      --lane.ready;
      out.push_back({index, number(*slot), lane.seek, lane.next});
      move(lane, advance(*lane.plan, lane.next));
    }
  }
}

bool Ledger::ack(std::uint32_t lane, std::uint32_t slot) {
  if (slot >= slots_.size() || !(slots_[slot].leased & bit(lane))) return false;
  end_lease(lane, slots_[slot]);
  return true;
}

void Ledger::condemn(std::uint32_t index) {
  Slot& slot = slots_[index];
  require(slot.state == State::kReady, "condemn() of a slot that is not ready");
  by_batch_.erase(by_batch_.iterator_to(slot));
  slot.key.owner = BatchKey::kNobody;  // no lane finds it any more
  by_batch_.insert(slot);
  for (std::uint64_t lanes = slot.pending; lanes != 0; lanes &= lanes - 1)
    drop_pending(static_cast<std::uint32_t>(std::countr_zero(lanes)), slot);
}

void Ledger::take_freed(std::vector<std::uint32_t>& out) {
  out.insert(out.end(), freed_.begin(), freed_.end());
  for (const std::uint32_t slot : freed_) make_idle(slots_[slot]);
  freed_.clear();
}

}  // namespace headrace::server::publish
