// The server's half of a ring: segments, slot words, grants out, acks in. It holds no policy: which slot to fill and whom to
// grant it is decided by server/publish, under whose lock all members but the payload accessors are called.
//
// Thread safety: `loan`, `publish`, `abandon`, `release`, `grant`, `attach`, `detach`, `take_acks`: one thread at a time (the
// publisher's mutex). Writing the payload of a LoanedSlot: any number of threads, which then synchronise with whoever
// publishes it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "clientlib/ring/layout.h"
#include "clientlib/ring/segment.h"
#include "clientlib/ring/slot_layout.h"
#include "headrace/error.h"

namespace headrace::ring {

struct BatchInfo {
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;
  std::uint64_t position = 0;
  std::uint32_t rows = 0;
  std::uint32_t valid_rows = 0;
};

/// The right to write one slot. Move-only; destroyed unpublished it must have been abandoned (asserted).
class LoanedSlot {
 public:
  LoanedSlot(LoanedSlot&& other) noexcept;
  LoanedSlot& operator=(LoanedSlot&& other) noexcept;
  ~LoanedSlot();

  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  /// Start of field f's values; `row_bytes * row` further on begins a dense row.
  [[nodiscard]] std::byte* values(std::size_t field) const;
  [[nodiscard]] std::int64_t* offsets(std::size_t field) const;  ///< ragged only
  [[nodiscard]] RowDesc* rows() const;

 private:
  friend class RingWriter;
  class RingWriter* ring_ = nullptr;
  std::uint32_t index_ = 0;
  std::uint64_t generation_ = 0;
};

struct TakenAck {
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
};

class RingWriter {
 public:
  struct Options {
    std::string name;                 ///< of the stream: appears in /proc/PID/maps
    std::vector<FieldSpec> fields;
    std::uint32_t rows = 0;           ///< batch size
    std::uint32_t slots = 0;
    std::uint32_t lanes = 0;          ///< the most clients attached at once
    ClientAccess data_access = ClientAccess::kReadWrite;
  };
  /// Bytes that `create` will take, both segments, without taking them.
  static Result<std::uint64_t> bytes_needed(const Options& options);
  static Result<std::unique_ptr<RingWriter>> create(const Options& options);

  // --- slots
  /// FREE -> FILLING with a new generation. The slot must be FREE (asserted).
  LoanedSlot loan(std::uint32_t slot);
  /// FILLING -> READY (SYNC publish-slot).
  void publish(LoanedSlot slot, const BatchInfo& info);
  /// FILLING -> FREE, nothing was published.
  void abandon(LoanedSlot slot);
  /// READY -> FREE.
  void release(std::uint32_t slot);
  [[nodiscard]] SlotState state(std::uint32_t slot) const;
  [[nodiscard]] std::uint64_t generation(std::uint32_t slot) const;

  // --- lanes
  struct Attachment {               ///< descriptors to send; borrowed but for `lease`, which the caller owns after sending
    int data_fd;
    int control_fd;
    int lease_fd;
  };
  /// Makes a fresh lease segment for this lane and resets its LaneBlock. The lane must be unattached (asserted).
  Result<Attachment> attach(std::uint32_t lane);
  /// Drops the lease segment. Grants that were not acked are the ledger's business.
  void detach(std::uint32_t lane);
  [[nodiscard]] bool attached(std::uint32_t lane) const;
  /// Writes the grant, then wakes the client if it sleeps (SYNC grant, SYNC client-sleeps).
  /// The caller bounds outstanding grants by kGrantRing.
  void grant(std::uint32_t lane, std::uint32_t slot, std::uint32_t seek);
  /// Sets LaneState bits and wakes the client.
  void set_lane_state(std::uint32_t lane, std::uint32_t bits);
  /// True if acks wait to be taken: one relaxed load per lane, for polling between slices.
  [[nodiscard]] bool has_acks(std::uint32_t lane) const;
  /// Appends the acks that arrived since the last call. kBadMessage if the segment holds garbage (count jumped by more than
  /// kGrantRing, slot out of range): the caller drops that client. Whether (slot, generation) was really leased to this lane
  /// is checked by the ledger.
  Result<void> take_acks(std::uint32_t lane, std::vector<TakenAck>& out);
  /// Copies of the client's own statements, for metrics and for telling hung from dead.
  struct ClientWord {
    std::uint64_t heartbeat_ns, wait_ns, consumed_epoch, consumed_batch, private_copies, staged_copies;
  };
  [[nodiscard]] std::optional<ClientWord> client_word(std::uint32_t lane) const;

  void beat();                       ///< stores the heartbeat
  void set_idle(bool idle);          ///< SYNC server-sleeps; after set_idle(true) look for acks once more, then sleep

  [[nodiscard]] const SlotLayout& layout() const { return layout_; }
  [[nodiscard]] std::uint32_t slot_count() const;
  [[nodiscard]] std::uint32_t lane_count() const;
  [[nodiscard]] std::uint64_t instance() const;
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  friend class LoanedSlot;
  struct Lane;
  RingWriter() = default;
  SlotLayout layout_;
  // ... implementation
};

}  // namespace headrace::ring
