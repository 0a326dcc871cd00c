// The client's half of a ring: grants in, acks out. It has no sockets: clientlib/client receives the
// descriptors.
//
// Thread safety: `next`: one thread at a time. `ack` and the accessors: any thread (a mutex serializes acks).
// The mapping exists as long as the reader, so anything that views its memory must share ownership of the
// reader.
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
    UniqueFd data, control, lease, doorbell;  ///< doorbell: eventfd, see ring_doorbell()
  };
  /// How the slots are mapped. kPrivate: copy-on-write if the kernel supports it (private_pages()). Otherwise
  /// read-only.
  enum class Slots : std::uint8_t { kShared, kPrivate };
  /// Maps and checks everything (magic, version, sizes, field table). kVersionMismatch names both versions.
  static Result<std::shared_ptr<RingReader>> open(Descriptors fds, std::uint32_t lane,
                                                  Slots slots = Slots::kShared);

  /// The next grant of seek `seek`; grants of other seeks are acked unread. Spins for `spin`, or for
  /// SpinBudget's time if that is longer. Then sleeps on the futex until `timeout`, in steps of at most
  /// kLongestSleep. nullopt: no grant came, or `interrupt` became true (set by another thread, e.g. when
  /// the server closed the socket), or a lane state bit other than kLaneOpen is set: check lane_state().
  /// Grants from before the lane began to drain or failed are still returned; after fencing none is.
  std::optional<Grant> next(std::uint32_t seek, std::chrono::nanoseconds timeout,
                            std::chrono::nanoseconds spin, const std::atomic<bool>* interrupt);
  /// The number of grants of this seek that `next` can return at once. Only for the thread that calls `next`.
  [[nodiscard]] std::uint32_t ready(std::uint32_t seek) const;
  /// Ends the lease (SYNC ack). Call once per grant, in any order.
  void ack(const Grant& grant);

  /// Writes the loop's position to the lease block, where the server reads it. One thread at a time.
  void commit(const Cursor& consumed) const;

  /// Makes a sleeping `next` check again at once; call after setting `interrupt`. (If `next` is about to
  /// sleep, it can miss this call; then it checks again after kLongestSleep.)
  void wake() const;

  /// LaneState bits. kLaneFenced is also set if the server dropped this client or the lane belongs to another
  /// one.
  [[nodiscard]] std::uint32_t lane_state() const;
  [[nodiscard]] const std::vector<FieldSpec>& fields() const;
  [[nodiscard]] const SlotDesc& slot(std::uint32_t slot) const;
  [[nodiscard]] const std::byte* values(std::uint32_t slot, std::size_t field) const;
  [[nodiscard]] const std::int64_t* offsets(std::uint32_t slot, std::size_t field) const;
  [[nodiscard]] const RowDesc* rows(std::uint32_t slot) const;
  /// False: the granted slot does not have the bytes that its checksum was made of. Only for the thread that
  /// calls `next`, before the slot is read.
  [[nodiscard]] bool intact(std::uint32_t slot);
  [[nodiscard]] std::uint32_t row_capacity() const;
  [[nodiscard]] std::uint64_t server_heartbeat_ns() const;
  [[nodiscard]] std::uint64_t instance() const;
  /// One slot's pages.
  [[nodiscard]] std::span<std::byte> memory(std::uint32_t slot) const;
  /// Null: the slots are not mapped copy-on-write.
  [[nodiscard]] const PrivatePages* private_pages() const { return pages_ ? &*pages_ : nullptr; }
  /// Whoever shows a slot to the loop says so: keep_viewed_only() keeps what is viewed.
  void begin_view(std::uint32_t slot) { views_[slot].fetch_add(1, std::memory_order_relaxed); }
  void end_view(std::uint32_t slot) { views_[slot].fetch_sub(1, std::memory_order_relaxed); }
  /// Copy-on-write slots: discards this process's writes to the slot, which then shows the server's bytes
  /// again. Returns the number of pages that had been written to.
  // NOLINTNEXTLINE(modernize-use-nodiscard): called for its effect; few callers need the number
  std::size_t drop_private_pages(std::uint32_t slot) const;
  /// Drops private pages that a slot has although the loop has not written to it. mlockall() makes such
  /// pages, of whole mappings, so only the slot's first and last page are checked. Call it before the slot is
  /// read, on the thread of `next`. Returns PrivatePages::faults() from before the check; nullopt without
  /// private pages.
  std::optional<std::uint64_t> freshen(std::uint32_t slot);
  /// The part of the data mapping that has memory, for pinning (cudaHostRegister): it contains every slot
  /// that was granted so far, and may grow with each further grant.
  [[nodiscard]] std::span<std::byte> data() const;
  /// For a server that is gone: gives back its ring's memory, which is freed once no process maps it and
  /// which a new server may need. Replaces the mapping by private memory that contains the viewed slots.
  /// Views stay valid, at the same addresses; what other threads write to them during the call may be lost.
  /// Does nothing after data() was called, because the mapping may be pinned.
  void keep_viewed_only();
  /// Whether mprotect could make the read-only mapping writable: not in the server's read-only mode, and not
  /// with Slots::kPrivate.
  [[nodiscard]] bool data_writable() const { return data_writable_; }

  /// The block that this client writes for the server.
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
  /// Wakes the server: after an ack if it sleeps, before this client sleeps if it is half awake, and when
  /// this client waits for the first time.
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
  mutable std::atomic<bool> exposed_{false};  ///< data() was called
  mutable std::mutex mapping_mutex_;
  bool holds_only_copies_ = false;  ///< after keep_viewed_only(); guarded by mapping_mutex_
  std::unique_ptr<std::atomic<std::uint32_t>[]> views_;  ///< by slot
  // Only for the thread in `next`.
  std::uint32_t seen_ = 0;  // grants read
  bool asked_ = false;      // has waited for a grant
  /// For each slot: what `freshen` last returned.
  std::vector<std::optional<std::uint64_t>> checked_at_;
  SpinBudget spin_;
  std::atomic<bool> mismatch_{false};  // a grant named a slot that does not exist or match: treated as fenced
  // For acks.
  std::mutex ack_mutex_;
  std::uint32_t acked_ = 0;  // guarded by ack_mutex_
};

}  // namespace headrace::ring
