// The client's half of a ring: grants in, acks out. No sockets here: descriptors come from clientlib/client.
//
// Thread safety: `next` by one thread at a time; `ack` and the accessors by any thread (acks serialise on a
// small mutex of this process). The mapping lives as long as the reader: hold it by shared_ptr from whatever
// views its memory.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "clientlib/ring/layout.h"
#include "clientlib/ring/private_pages.h"
#include "clientlib/ring/segment.h"
#include "clientlib/ring/spin.h"
#include "headrace/cursor.h"
#include "headrace/error.h"
#include "headrace/field.h"

namespace headrace::ring {

class RingReader {
 public:
  struct Descriptors {
    UniqueFd data, control, lease, doorbell;  ///< doorbell: eventfd, rung after an ack when the server sleeps
  };
  /// How the slots are mapped. kPrivate: copy-on-write, where the kernel can (private_pages()); else
  /// read-only.
  enum class Slots : std::uint8_t { kShared, kPrivate };
  /// Maps and checks everything (magic, version, sizes, field table). kVersionMismatch names both versions.
  static Result<std::shared_ptr<RingReader>> open(Descriptors fds, std::uint32_t lane,
                                                  Slots slots = Slots::kShared);

  /// The next grant of seek `seek`; grants of other seeks are acked unseen. Spins `spin`, or some
  /// microseconds where that has lately been enough, then sleeps on the futex in steps of at most
  /// kLongestSleep until `timeout`. nullopt: nothing yet, or `interrupt` became true (set by another thread,
  /// e.g. when the server's socket closed), or a lane state bit other than kLaneOpen is set: look at
  /// lane_state(). Grants that had been given before the lane began to drain or failed still come; after
  /// fencing none does.
  std::optional<Grant> next(std::uint32_t seek, std::chrono::nanoseconds timeout,
                            std::chrono::nanoseconds spin, const std::atomic<bool>* interrupt);
  /// Grants of this seek that `next` would give at once. By the thread that calls `next`.
  [[nodiscard]] std::uint32_t ready(std::uint32_t seek) const;
  /// Ends the lease (SYNC ack). Once per grant, in any order.
  void ack(const Grant& grant);

  /// Tells the server how far the loop has come. By one thread at a time.
  void commit(const Cursor& consumed) const;

  /// Makes a sleeping `next` look again at once; for whoever sets `interrupt`. (Just missed, it costs
  /// kLongestSleep.)
  void wake() const;

  /// LaneState bits; kLaneFenced also if the server dropped this client or gave the lane to another.
  [[nodiscard]] std::uint32_t lane_state() const;
  [[nodiscard]] const std::vector<FieldSpec>& fields() const;
  [[nodiscard]] const SlotDesc& slot(std::uint32_t slot) const;
  [[nodiscard]] const std::byte* values(std::uint32_t slot, std::size_t field) const;
  [[nodiscard]] const std::int64_t* offsets(std::uint32_t slot, std::size_t field) const;
  [[nodiscard]] const RowDesc* rows(std::uint32_t slot) const;
  [[nodiscard]] std::uint32_t row_capacity() const;
  [[nodiscard]] std::uint64_t server_heartbeat_ns() const;
  [[nodiscard]] std::uint64_t instance() const;
  /// One slot's pages.
  [[nodiscard]] std::span<std::byte> memory(std::uint32_t slot) const;
  /// Null: the slots are not mapped copy-on-write.
  [[nodiscard]] const PrivatePages* private_pages() const { return pages_ ? &*pages_ : nullptr; }
  /// Copy-on-write slots: what this process wrote there is gone, the server's bytes show again. To how many
  /// pages it had written.
  // NOLINTNEXTLINE(modernize-use-nodiscard): it is called for what it does; few ask how many there were
  std::size_t drop_private_pages(std::uint32_t slot) const;
  /// Before a slot is read, by the thread that calls `next`: drops its private pages if there are any
  /// although nobody wrote. A process that locks all its memory (mlockall) makes copies of whole mappings,
  /// from their first page to their last. PrivatePages::faults() just before.
  std::optional<std::uint64_t> freshen(std::uint32_t slot);
  /// Whole data mapping, for pinning (cudaHostRegister) and protecting.
  [[nodiscard]] std::span<std::byte> data() const;
  /// The mapping, which is read-only, could be made writable by mprotect: not in the server's read-only mode,
  /// and not with Slots::kPrivate.
  [[nodiscard]] bool data_writable() const { return data_writable_; }

  /// The client's own statements to the server.
  LeaseBlock& lease() const;

 private:
  RingReader() = default;
  Result<void> map_data(UniqueFd fd, Slots slots);
  Result<void> check(std::uint32_t lane);
  Result<void> check_fields();
  [[nodiscard]] const ControlHeader& header() const;
  [[nodiscard]] const SlotDesc& slot_desc(std::uint32_t slot) const;
  [[nodiscard]] bool fenced() const;
  [[nodiscard]] bool wait_for_grant(std::uint64_t deadline_ns, std::uint64_t spin_until_ns,
                                    const std::atomic<bool>* interrupt);
  std::optional<Grant> take(std::uint32_t seek);
  void ring_doorbell() const;

  // Immutable after open. Geometry is copied from control once and checked once.
  Segment data_;
  Segment control_;
  Segment lease_;
  UniqueFd doorbell_;
  std::vector<FieldSpec> specs_;
  std::vector<FieldDesc> descs_;
  const LaneBlock* lane_ = nullptr;
  std::uint64_t attachment_ = 0;
  std::uint64_t slots_offset_ = 0;
  std::uint64_t slot_stride_ = 0;
  std::uint64_t rows_offset_ = 0;
  std::uint32_t slot_count_ = 0;
  std::uint32_t row_capacity_ = 0;
  bool data_writable_ = false;
  std::optional<PrivatePages> pages_;
  // The thread in `next`.
  std::uint32_t seen_ = 0;  // grants taken
  /// By slot: what `freshen` last gave.
  std::vector<std::optional<std::uint64_t>> looked_at_;
  SpinBudget spin_;
  std::atomic<bool> mismatch_{false};  // a grant named a slot that is not ours: treated as fenced
  // Ackers.
  std::mutex ack_mutex_;
  std::uint32_t acked_ = 0;  // guarded by ack_mutex_
};

}  // namespace headrace::ring
