// Tracks which lane waits for which slot and which lane holds it. Only the server sees this state; it is pure
// bookkeeping without memory or sockets.
//
// A lane is one attached client. A slot carries one batch and two sets of lanes: `pending` (will be granted
// the batch) and `leased` (holds it). A slot is free if and only if both sets are empty and no worker fills
// it.
//
// Budgets. Every lane owns a reserve of slots that no other lane can use; the slots beyond the reserves form
// a pool:
//   broadcast: reserve = max_leases, pool = prefetch     (lanes share slots)
//   shard:     reserve = max_leases + prefetch, pool = 0 (nothing is shared)
// The slots exist for the largest number of lanes that were open at once so far, because the ring gets its
// memory as clients attach: see provide().
// A lane gets a slot beyond its reserve only if every other lane could still reach its own reserve. A
// broadcast lane more than `max_lag` batches behind the foremost lane is detached (`detach`): it is limited
// to its reserve, and batches are built for it alone. With `wait`, no batch is built that is `max_lag` or
// more ahead of the hindmost lane's next one, and a newly opened lane waits at once for every existing batch
// of its window: no batch between the hindmost lane's next one and the last one built is freed before the
// lane joined it, unless a lane below its reserve needs the slot.
//
// Invariants (checked by tests/property/ledger_test.cpp after every step)
//  1. pending and leased of a slot are disjoint; each lane's `leased` count <= max_leases.
//  2. Lanes are granted the batches of their cursor's sequence in order, each once, until a seek.
//  3. A slot is filled only when free, and is freed as soon as its last holder releases it.
//
// Cost. All of this runs under the engine's lock: a batch costs O(lanes) and, for the lane that it is filled
// for, O(quota); a lane with a full window costs O(1). So counts are updated with each change, slots are
// found by a hash of their batch, and the foremost and hindmost lanes are cached.
//
// Thread safety: none; the caller holds the publisher's lock.
#pragma once

#include <algorithm>
#include <boost/intrusive/unordered_set.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "headrace/cursor.h"
#include "server/publish/position.h"
#include "server/sampler/order.h"

namespace headrace::server::publish {

/// Identifies a batch among a stream's slots.
struct BatchKey {
  static constexpr std::uint64_t kEveryone = ~std::uint64_t{0};
  static constexpr std::uint64_t kNobody = kEveryone - 1;  ///< of a condemned slot
  Cursor cursor;
  /// shard: the number of the opening of its lane, because the lane's next client may be of another rank, and
  /// a batch that was begun for its former one may still be in the making; broadcast: kEveryone
  std::uint64_t owner = kEveryone;

  friend bool operator==(const BatchKey&, const BatchKey&) = default;
};
std::size_t hash_value(const BatchKey& key);  ///< found by boost::hash

class Ledger {
 public:
  static constexpr std::uint32_t kMaxLanes = 64;

  struct Options {
    std::uint32_t lanes = 1;
    std::uint32_t max_leases = 2;
    std::uint32_t prefetch = 4;
    bool broadcast = true;
    std::uint32_t max_lag = 4;
    bool detach = true;
  };
  /// There are slots for one lane at first.
  explicit Ledger(const Options& options);
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// The number of slots that a ring needs for this number of open lanes.
  static std::uint32_t slots_needed(const Options& options, std::uint32_t lanes);
  static std::uint32_t slots_needed(const Options& options) { return slots_needed(options, options.lanes); }
  /// Adds the slots that this number of open lanes needs. Fewer lanes than before: no effect.
  void provide(std::uint32_t lanes);

  // --- lanes
  /// The lane must be closed, and there must be slots for one more lane. `plan` must outlive the lane.
  /// `cursor` is normalized.
  void open(std::uint32_t lane, const sampler::EpochPlan* plan, const Cursor& cursor);
  /// Cancels what is pending and frees what is leased. Returns the number of leases that were freed.
  std::uint32_t close(std::uint32_t lane);
  /// Cancels what is pending for good; leases stay until they are acked or the lane is closed.
  void fence(std::uint32_t lane);
  /// Cancels what is pending and continues from `cursor`. Returns the lane's new seek number.
  std::uint32_t seek(std::uint32_t lane, const Cursor& cursor);

  /// Lanes, one bit each, that others wait for; they may use the full quota although they lag.
  void favor(std::uint64_t lanes) { favored_ = lanes; }
  /// Batches at or beyond `end` do not exist yet and are not built. Without this call all batches exist.
  void set_end(const Position& end) { end_ = end; }

  [[nodiscard]] bool is_open(std::uint32_t lane) const { return lanes_[lane].plan != nullptr; }
  /// Whether an open lane that is not fenced is limited to its reserve because it is beyond `max_lag`.
  [[nodiscard]] bool is_detached(std::uint32_t lane) const {
    return is_open(lane) && !is_fenced(lane) && options_.broadcast && falls_behind(lane);
  }
  [[nodiscard]] bool is_fenced(std::uint32_t lane) const { return lanes_[lane].fenced; }
  [[nodiscard]] Cursor next(std::uint32_t lane) const { return lanes_[lane].next; }
  /// The position of `next`. The lane must be open.
  [[nodiscard]] Position position(std::uint32_t lane) const { return position(lanes_[lane]); }
  [[nodiscard]] std::uint32_t seek_number(std::uint32_t lane) const { return lanes_[lane].seek; }
  /// BatchKey::owner of the open lane's batches.
  [[nodiscard]] std::uint64_t owner(std::uint32_t lane) const { return lanes_[lane].owner; }
  [[nodiscard]] std::uint32_t leases(std::uint32_t lane) const { return lanes_[lane].leased; }
  /// How many batches the foremost open lane is ahead of this one, counted up to `most`.
  [[nodiscard]] std::uint32_t lag(std::uint32_t lane, std::uint32_t most) const;
  /// Batches that are ready for this lane or leased to it, and 0 of those that are ready if the next one is
  /// missing; its ring is empty at 0 and full at `quota`. As of the last take_grants().
  [[nodiscard]] std::uint32_t ahead(std::uint32_t lane) const {
    const Lane& it = lanes_[lane];
    // With a free lease, the next batch would have been granted if it were ready.
    const bool missing = it.ready > 0 && (it.leased < options_.max_leases || !next_is_ready(lane));
    return missing ? it.leased : it.leased + it.ready;
  }
  [[nodiscard]] std::uint32_t quota() const { return options_.max_leases + options_.prefetch; }

  // --- slots
  struct Fill {
    std::uint32_t slot = 0;
    BatchKey key;
    std::uint32_t lane = 0;  ///< the lane that it is built for
  };
  /// Joins this lane to the existing batches of its window, and allocates a slot for the first missing one.
  /// Joining a ready batch can make grants due: call take_grants() afterwards.
  std::optional<Fill> take_fill(std::uint32_t lane);
  /// The first batch of the open lane's window that no slot has; nullopt: there is none.
  [[nodiscard]] std::optional<Cursor> first_missing(std::uint32_t lane) const;
  /// Ends a fill. False: no lane wants the batch any more; the slot is free again.
  bool filled(std::uint32_t slot);
  /// Ends a failed fill: no lane waits for the batch any more, and the slot is free.
  void discard(std::uint32_t slot);

  struct Order {
    std::uint32_t lane, slot, seek;
    Cursor batch;
  };
  /// Appends the grants that are due, in order, and counts them as leased.
  void take_grants(std::vector<Order>& out);
  /// False: this lane holds no lease on that slot.
  bool ack(std::uint32_t lane, std::uint32_t slot);
  /// The READY slot's batch is damaged: it is made again, in another slot, for the lanes that wait for it.
  /// Those that hold it keep the slot until they ack it.
  void condemn(std::uint32_t slot);
  [[nodiscard]] bool condemned(std::uint32_t slot) const {
    return slots_[slot].state == State::kReady && slots_[slot].key.owner == BatchKey::kNobody;
  }
  [[nodiscard]] const Cursor& batch(std::uint32_t slot) const { return slots_[slot].key.cursor; }
  [[nodiscard]] bool has_lease(std::uint32_t lane, std::uint32_t slot) const {
    return slot < slots_.size() && (slots_[slot].leased & bit(lane)) != 0;
  }
  /// Appends ready slots that became free since the last call.
  void take_freed(std::vector<std::uint32_t>& out);

  struct Counts {
    std::uint32_t free = 0, filling = 0, ready = 0, leased = 0;

    friend bool operator==(const Counts&, const Counts&) = default;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  /// Lanes, one bit each, that get the batch of this new fill for sure: those that wait for it or are so
  /// close that they will, but for lanes that may be detached before. The others may need it made again.
  [[nodiscard]] std::uint64_t served_by(const Fill& fill) const;
  /// Whether a slot carries this batch, or is being filled with it.
  [[nodiscard]] bool holds(const BatchKey& key) const;
  [[nodiscard]] const Options& options() const { return options_; }
  /// How often a lane fell more than `max_lag` behind. It counts again only after it was within half of that.
  [[nodiscard]] std::uint64_t detachments() const { return detachments_; }
  /// Aborts with a message if an invariant does not hold. For tests.
  void check() const;

 private:
  static constexpr std::uint64_t bit(std::uint32_t index) { return std::uint64_t{1} << index; }

  enum class State : std::uint8_t { kFree, kFilling, kReady };
  struct Slot : boost::intrusive::unordered_set_base_hook<> {
    State state = State::kFree;
    std::uint64_t pending = 0, leased = 0;
    BatchKey key;
  };
  struct KeyOfSlot {
    using type = BatchKey;
    const BatchKey& operator()(const Slot& slot) const { return slot.key; }
  };
  /// Slots that are not free, by their batch. After a seek back two slots may carry the same batch.
  using ByBatch = boost::intrusive::unordered_multiset<Slot, boost::intrusive::key_of_value<KeyOfSlot>,
                                                       boost::intrusive::power_2_buckets<true>,
                                                       boost::intrusive::constant_time_size<false>>;
  struct Lane {
    const sampler::EpochPlan* plan = nullptr;
    std::uint64_t owner = BatchKey::kEveryone;  ///< of its batches
    Cursor next;
    std::uint32_t seek = 0, pending = 0, leased = 0;
    std::uint32_t ready = 0;  ///< those of `pending` that are in READY slots
    bool fenced = false, lagging = false;
    bool counted = false;  ///< in `detachments_`, since it was within half of max_lag
  };

  [[nodiscard]] BatchKey key_of(std::uint32_t lane, const Cursor& cursor) const;
  /// This batch's slot for this lane: the one that it waits for, or else one that it does not hold already
  /// (after a seek back, a lane may want a batch again while a view of its first slot exists).
  [[nodiscard]] Slot* find(const BatchKey& key, std::uint32_t lane);
  [[nodiscard]] static Position position(const Lane& lane) { return position_of(*lane.plan, lane.next); }
  [[nodiscard]] std::uint32_t held(const Lane& lane) const { return lane.pending + lane.leased; }
  [[nodiscard]] std::uint32_t limit(const Lane& lane) const;
  /// How many slots the lane holds less than its reserve.
  [[nodiscard]] std::uint32_t missing(const Lane& lane) const {
    return reserve_ - std::min(reserve_, held(lane));
  }
  [[nodiscard]] std::uint32_t number(const Slot& slot) const {
    return static_cast<std::uint32_t>(&slot - slots_.data());
  }
  /// Changes the lane's counts, and `owed_` accordingly.
  void hold(Lane& lane, int pending, int leased);
  void join(std::uint32_t lane, Slot& slot);        ///< the lane waits for the slot's batch
  void take_slot(Slot& slot, const BatchKey& key);  ///< FREE to FILLING
  void make_idle(Slot& slot);                       ///< to FREE, for the next fill
  void end_lease(std::uint32_t lane, Slot& slot);
  void move(Lane& lane, const Cursor& next);  ///< forward, by grants
  void positions_changed() { foremost_.reset(), hindmost_.reset(); }
  [[nodiscard]] const Position& foremost() const;  ///< of open lanes that are not fenced; {} without
  [[nodiscard]] const Lane* hindmost() const;      ///< null without
  /// Joins every other lane whose window contains this new batch to it, so that it is not freed before they
  /// need it.
  void join_others(Slot& slot);
  void join_existing(std::uint32_t lane);
  Slot* farthest_pending(std::uint32_t lane);  ///< null: the lane waits for none
  void drop_farthest(std::uint32_t lane);      ///< the lane must wait for one
  /// Keeps the lane within its limit by cancelling batches farther away than `cursor`. False: there are none.
  bool make_room(std::uint32_t lane, const Cursor& cursor);
  Slot* allocate(std::uint32_t lane);
  Slot* reclaim(std::uint32_t lane);
  void drop_pending(std::uint32_t lane, Slot& slot);
  void cancel_pending(std::uint32_t lane);
  void free_if_unwanted(Slot& slot);
  void update_lag(std::uint32_t lane);
  [[nodiscard]] bool falls_behind(std::uint32_t lane) const {
    return options_.detach && lag(lane, options_.max_lag + 1) > options_.max_lag;
  }
  [[nodiscard]] bool next_is_ready(std::uint32_t lane) const;
  [[nodiscard]] bool in_window(const Lane& lane, const Cursor& batch) const;
  [[nodiscard]] bool too_far_ahead(const sampler::EpochPlan& plan, const Cursor& cursor) const;

  const Options options_;
  const std::uint32_t reserve_;
  std::optional<Position> end_;
  std::vector<Slot> slots_;
  std::vector<ByBatch::bucket_type> buckets_;
  ByBatch by_batch_;  ///< after the slots that it links
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> freed_;
  /// One bit per slot that is free and was so at the last take_freed(): until that call, the ring still has
  /// the slot as READY.
  std::vector<std::uint64_t> idle_;
  std::uint32_t idle_slots_ = 0;
  std::uint32_t provided_ = 0;  ///< lanes for which there are slots; further ones are neither idle nor owed
  std::uint64_t owed_ = 0;      ///< by how much those lanes together are below their reserves
  Counts counts_;
  mutable std::optional<Position> foremost_;
  mutable std::optional<const Lane*> hindmost_;
  std::uint64_t detachments_ = 0, favored_ = 0;
  std::uint64_t openings_ = 0;  ///< of lanes
};

}  // namespace headrace::server::publish
