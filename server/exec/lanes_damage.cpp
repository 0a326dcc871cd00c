// Slots whose bytes changed after they were published: ring.checksums.
#include <utility>

#include "server/exec/lanes.h"
#include "server/log/log.h"

namespace headrace::server::exec {

wire::CursorSetReply Lanes::request_again(std::uint32_t index, const Cursor& batch,
                                          const wire::DamagedSlot& damaged) {
  reject(index, damaged);
  return move(index, batch);  // the client has consumed nothing since, so its position is the same
}

void Lanes::reject(std::uint32_t index, const wire::DamagedSlot& damaged) {
  // A client may report anything, so the server computes the checksum itself. It holds the engine's lock
  // meanwhile, so a client can have it do so once for each lease. Others may have reported the slot before.
  if (!ledger_.has_lease(index, damaged.slot) || ring_.generation(damaged.slot) != damaged.generation ||
      ledger_.condemned(damaged.slot))
    return;
  std::uint64_t& reported = lanes_[index].reported[damaged.slot];
  if (std::exchange(reported, damaged.generation) == damaged.generation || ring_.intact(damaged.slot)) return;
  const Cursor batch = ledger_.batch(damaged.slot);
  ledger_.condemn(damaged.slot);
  ++checksum_mismatches_;
  log::error(
      "stream `{}`: {} was damaged in memory (slot {}), as client `{}` reported; the server makes it again. "
      "If this repeats, test the machine's memory",
      info_.name, to_string(batch), damaged.slot, lanes_[index].client);
}

}  // namespace headrace::server::exec
