// The client's half of a ring: grants in, acks out. No sockets here: descriptors come from clientlib/client.
//
// Thread safety: `next` by one thread at a time; `ack` and the accessors by any thread (acks serialise on a small mutex of
// this process). The mapping lives as long as the reader: hold it by shared_ptr from whatever views its memory.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "clientlib/ring/layout.h"
#include "clientlib/ring/segment.h"
#include "headrace/error.h"
#include "headrace/field.h"

namespace headrace::ring {

class RingReader {
 public:
  struct Descriptors {
    UniqueFd data, control, lease, doorbell;  ///< doorbell: eventfd, rung after an ack when the server sleeps
  };
  /// Maps and checks everything (magic, version, sizes, field table). kVersionMismatch names both versions.
  static Result<std::shared_ptr<RingReader>> open(Descriptors fds, std::uint32_t lane);

  /// The next grant of seek `seek`; grants of other seeks are acked unseen. Spins `spin`, then sleeps on the futex in steps of
  /// at most kLongestSleep until `timeout`. nullopt: nothing yet, or `interrupt` became true (set by another thread, e.g.
  /// when the server's socket closed), or a lane state bit other than kLaneOpen is set: look at lane_state().
  std::optional<Grant> next(std::uint32_t seek, std::chrono::nanoseconds timeout, std::chrono::nanoseconds spin,
                            const std::atomic<bool>* interrupt);
  /// Ends the lease. Once per grant.
  void ack(const Grant& grant);

  [[nodiscard]] std::uint32_t lane_state() const;
  [[nodiscard]] const std::vector<FieldSpec>& fields() const;
  [[nodiscard]] const SlotDesc& slot(std::uint32_t slot) const;
  [[nodiscard]] const std::byte* values(std::uint32_t slot, std::size_t field) const;
  [[nodiscard]] const std::int64_t* offsets(std::uint32_t slot, std::size_t field) const;
  [[nodiscard]] const RowDesc* rows(std::uint32_t slot) const;
  [[nodiscard]] std::uint32_t row_capacity() const;
  [[nodiscard]] std::uint64_t server_heartbeat_ns() const;
  [[nodiscard]] std::uint64_t instance() const;
  /// Whole data mapping, for pinning (cudaHostRegister) and protecting.
  [[nodiscard]] std::span<std::byte> data() const;

  /// The client's own statements to the server.
  LeaseBlock& lease() const;

 private:
  RingReader() = default;
  // ... implementation
};

}  // namespace headrace::ring
