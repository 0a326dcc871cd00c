// Who waits for which slot and who holds it: the server's private truth, as pure bookkeeping without memory
// or sockets.
//
// A lane is one attached client. A slot carries one batch and two sets of lanes: `pending` (will be granted
// it) and `leased` (holds it). A slot is free if and only if both sets are empty and nobody fills it.
//
// Budgets. Every lane owns a reserve of slots that no other lane can keep from it; beyond the reserves lies a
// pool:
//   broadcast: reserve = max_leases, pool = prefetch     (consumers share slots; slots = prefetch + lanes *
//   max_leases) shard:     reserve = max_leases + prefetch, pool = 0 (nothing is shared; a slow rank fills
//   nobody else's slots)
// A lane takes a slot beyond its reserve only if every other lane could still reach its own. A broadcast lane
// more than `max_lag` batches behind the foremost one is cut down to its reserve (`detach`): it goes on as an
// ordinary lane whose batches are built for it alone. With `wait` no batch is built that is `max_lag` or more
// ahead of the hindmost lane's next, and a lane that opens waits at once for every batch of its window that
// exists: nothing between the hindmost lane's next and the last one built is ever freed before it looked.
//
// Invariants (checked by tests/property/ledger_test.cpp after every step)
//  1. pending and leased of a slot are disjoint; each lane's `leased` count <= max_leases.
//  2. Lanes are granted the batches of their cursor's sequence in order, each once, until a seek.
//  3. A slot is filled only when free, and is freed as soon as its last holder lets go.
//
// Cost. The engine's lock is held meanwhile: a batch costs O(lanes), and a lane whose window is full O(1). So
// what a look would have to count is counted as it changes, slots are found by their batch's hash, and the
// foremost and hindmost lanes are remembered.
//
// Thread safety: none; the publisher's lock.
#pragma once

#include <boost/intrusive/unordered_set.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "headrace/cursor.h"
#include "server/publish/place.h"
#include "server/sampler/order.h"

namespace headrace::server::publish {

/// Names a batch among a stream's slots.
struct BatchKey {
  static constexpr std::uint32_t kEveryone = ~0U;
  Cursor cursor;
  std::uint32_t owner = kEveryone;  ///< shard: the lane; broadcast: kEveryone

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
  explicit Ledger(const Options& options);
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Slots that a ring needs for these options.
  static std::uint32_t slots_needed(const Options& options);

  // --- lanes
  /// The lane must be closed. `plan` must outlive the lane. `cursor` is normalised.
  void open(std::uint32_t lane, const sampler::EpochPlan* plan, const Cursor& cursor);
  /// Cancels what is pending and frees what is leased. Returns the number of leases that were freed.
  std::uint32_t close(std::uint32_t lane);
  /// Cancels what is pending for good; what is leased stays so until acked or closed.
  void fence(std::uint32_t lane);
  /// Cancels what is pending and goes on from `cursor`. Returns the lane's new seek number.
  std::uint32_t seek(std::uint32_t lane, const Cursor& cursor);

  /// No batch at or beyond `end` is built: it does not exist yet. Without a call they all exist.
  void set_end(const Place& end) { end_ = end; }

  [[nodiscard]] bool is_open(std::uint32_t lane) const { return lanes_[lane].plan != nullptr; }
  [[nodiscard]] bool is_fenced(std::uint32_t lane) const { return lanes_[lane].fenced; }
  [[nodiscard]] Cursor next(std::uint32_t lane) const { return lanes_[lane].next; }
  /// Of `next`. The lane must be open.
  [[nodiscard]] Place place(std::uint32_t lane) const { return place(lanes_[lane]); }
  [[nodiscard]] std::uint32_t seek_number(std::uint32_t lane) const { return lanes_[lane].seek; }
  [[nodiscard]] std::uint32_t leases(std::uint32_t lane) const { return lanes_[lane].leased; }
  /// Batches that the foremost open lane is ahead of this one, counted up to `most`.
  [[nodiscard]] std::uint32_t lag(std::uint32_t lane, std::uint32_t most) const;
  /// Batches ready for this lane or in its hands; its ring is empty at 0, full at `quota`.
  [[nodiscard]] std::uint32_t ahead(std::uint32_t lane) const {
    return lanes_[lane].leased + lanes_[lane].ready;
  }
  [[nodiscard]] std::uint32_t quota() const { return options_.max_leases + options_.prefetch; }

  // --- slots
  struct Fill {
    std::uint32_t slot = 0;
    BatchKey key;
    std::uint32_t lane = 0;  ///< on whose behalf
  };
  /// Joins this lane to the batches of its window that exist, and takes a slot for the first one that does
  /// not. Joining a ready batch can make grants due: call take_grants() afterwards.
  std::optional<Fill> take_fill(std::uint32_t lane);
  /// The fill is done. False: nobody wants it any more; the slot is free again.
  bool filled(std::uint32_t slot);
  /// The fill came to nothing (the stream failed): nobody waits for it any more, the slot is free.
  void discard(std::uint32_t slot);

  struct Order {
    std::uint32_t lane, slot, seek;
  };
  /// Appends the grants that are due, in order, and counts them as leased.
  void take_grants(std::vector<Order>& out);
  /// False: this lane does not lease that slot.
  bool ack(std::uint32_t lane, std::uint32_t slot);
  /// Appends ready slots that became free since the last call.
  void take_freed(std::vector<std::uint32_t>& out);

  struct Counts {
    std::uint32_t free = 0, filling = 0, ready = 0, leased = 0;

    friend bool operator==(const Counts&, const Counts&) = default;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  /// Whether some slot carries this batch, or will.
  [[nodiscard]] bool holds(const BatchKey& key) const;
  [[nodiscard]] const Options& options() const { return options_; }
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
  /// Slots that are not free, by their batch. After a seek back two may carry the same one.
  using ByBatch = boost::intrusive::unordered_multiset<Slot, boost::intrusive::key_of_value<KeyOfSlot>,
                                                       boost::intrusive::power_2_buckets<true>,
                                                       boost::intrusive::constant_time_size<false>>;
  struct Lane {
    const sampler::EpochPlan* plan = nullptr;
    Cursor next;
    std::uint32_t seek = 0, pending = 0, leased = 0;
    std::uint32_t ready = 0;  ///< of `pending`: those in READY slots
    bool fenced = false, lagging = false;
  };

  [[nodiscard]] BatchKey key_of(std::uint32_t lane, const Cursor& cursor) const;
  /// The slot of this batch for this lane: the one it waits for, else one that it does not hold already
  /// (after a seek back a batch may be wanted again while a view on its first slot lives).
  [[nodiscard]] Slot* find(const BatchKey& key, std::uint32_t lane);
  [[nodiscard]] static Place place(const Lane& lane) { return place_of(*lane.plan, lane.next); }
  [[nodiscard]] std::uint32_t held(const Lane& lane) const { return lane.pending + lane.leased; }
  [[nodiscard]] std::uint32_t limit(const Lane& lane) const;
  [[nodiscard]] std::uint32_t number(const Slot& slot) const {
    return static_cast<std::uint32_t>(&slot - slots_.data());
  }
  /// Changes what a lane holds, and `owed_` with it.
  void hold(Lane& lane, int pending, int leased);
  void join(std::uint32_t lane, Slot& slot);        ///< it waits for the slot's batch
  void take_slot(Slot& slot, const BatchKey& key);  ///< FREE to FILLING
  void give_back(Slot& slot);                       ///< to FREE, for the next fill
  void end_lease(std::uint32_t lane, Slot& slot);
  void move(Lane& lane, const Cursor& next);  ///< forward, by grants
  void places_changed() { foremost_.reset(), hindmost_.reset(); }
  [[nodiscard]] const Place& foremost() const;  ///< of open lanes that are not fenced; {} without
  [[nodiscard]] const Lane* hindmost() const;   ///< null without
  /// Lets every other lane whose window holds this new batch wait for it, too: it must not be freed before
  /// they looked.
  void join_others(Slot& slot);
  void join_existing(std::uint32_t lane);
  Slot* farthest_pending(std::uint32_t lane);
  /// Keeps the lane within its limit by giving up batches farther away than `cursor`. False: there are none.
  bool make_room(std::uint32_t lane, const Cursor& cursor);
  Slot* allocate(std::uint32_t lane);
  Slot* reclaim(std::uint32_t lane);
  void drop_pending(std::uint32_t lane, Slot& slot);
  void cancel_pending(std::uint32_t lane);
  void free_if_unwanted(Slot& slot);
  void update_lag(std::uint32_t lane);
  [[nodiscard]] bool in_window(const Lane& lane, const Cursor& batch) const;
  [[nodiscard]] bool too_far_ahead(const sampler::EpochPlan& plan, const Cursor& cursor) const;

  const Options options_;
  const std::uint32_t reserve_;
  std::optional<Place> end_;
  std::vector<Slot> slots_;
  std::vector<ByBatch::bucket_type> buckets_;
  ByBatch by_batch_;  ///< after what it links
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> freed_;
  /// Slots that are free and were so at the last take_freed(): until then the ring has them as READY. One bit
  /// each.
  std::vector<std::uint64_t> idle_;
  std::uint32_t idle_slots_ = 0;
  std::uint64_t owed_ = 0;  ///< what all lanes together hold less than their reserves
  Counts counts_;
  mutable std::optional<Place> foremost_;
  mutable std::optional<const Lane*> hindmost_;
  std::uint64_t detachments_ = 0;
};

}  // namespace headrace::server::publish
