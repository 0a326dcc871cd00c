// Ledger: its invariants, for tests.
#include <algorithm>
#include <bit>

#include "clientlib/base/contract.h"
#include "server/publish/ledger.h"

namespace headrace::server::publish {
void Ledger::check() const {
  std::uint64_t owed = 0;
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    const Lane& lane = lanes_[index];
    std::uint32_t pending = 0, ready = 0, leased = 0;
    for (const Slot& slot : slots_) {
      pending += (slot.pending & bit(index)) != 0;
      ready += (slot.pending & bit(index)) != 0 && slot.state == State::kReady;
      leased += (slot.leased & bit(index)) != 0;
      if (slot.pending & bit(index))
        require(in_window(lane, slot.key.cursor), "a lane waits for a batch beyond its window");
    }
    require(pending == lane.pending && ready == lane.ready && leased == lane.leased,
            "lane counts differ from the slots");
    require(lane.leased <= options_.max_leases, "more leases than max_leases");
    require(lane.plan || held(lane) == 0, "a closed lane holds slots");
    owed += missing(lane);
    if (!lane.plan || lane.fenced) continue;
    require(!foremost_ || position(lane) <= *foremost_, "a lane is before the foremost one");
    require(!hindmost_ || (*hindmost_ && position(**hindmost_) <= position(lane)),
            "a lane is behind the hindmost one");
  }
  owed -= std::uint64_t{reserve_} * (options_.lanes - provided_);
  require(owed == owed_, "what is owed to the lanes differs from what they hold");
  Counts counts;
  const std::uint32_t provided = slots_needed(options_, provided_);
  for (const Slot& slot : slots_) {
    const bool idle = (idle_[number(slot) / 64] >> number(slot) % 64 & 1) != 0;
    if (number(slot) >= provided) {
      require(slot.state == State::kFree && !idle, "a slot is used that the ring does not have yet");
      continue;
    }
    require((slot.pending & slot.leased) == 0, "a lane both waits for a slot and holds it");
    require(slot.state != State::kFree || (slot.pending | slot.leased) == 0, "a free slot has holders");
    require(slot.state != State::kFilling || slot.leased == 0, "a slot is filled while leased");
    require(slot.state != State::kReady || (slot.pending | slot.leased) != 0,
            "a ready slot without holders was not freed");
    require(slot.is_linked() == (slot.state != State::kFree),
            "a slot is found by its batch if it is free, or not if it is not");
    const bool freed = std::find(freed_.begin(), freed_.end(), number(slot)) != freed_.end();
    require(idle == (slot.state == State::kFree && !freed),
            "a free slot is not idle, or an idle one not free");
    if (!options_.broadcast)
      require(std::popcount(slot.pending | slot.leased) <= 1, "a shard's slot has two holders");
    ++(slot.state == State::kFree      ? counts.free
       : slot.state == State::kFilling ? counts.filling
       : slot.leased                   ? counts.leased
                                       : counts.ready);
  }
  require(counts == counts_, "slot counts differ from the slots");
  std::uint32_t idle = 0;
  for (const std::uint64_t word : idle_) idle += std::popcount(word);
  require(idle == idle_slots_, "the number of idle slots differs from their bits");
}

}  // namespace headrace::server::publish
