// The server's half of a ring: segments, slot words, grants out, acks in. It holds no policy: which slot to
// fill and whom to grant it is decided by server/publish, under whose lock all members but the payload
// accessors are called.
//
// Thread safety: `loan`, `publish`, `abandon`, `release`, `grant`, `attach`, `detach`, `has_acks`,
// `take_acks`, `client_word`: one thread at a time (the publisher's mutex). Writing the payload of a
// LoanedSlot: any number of threads, which then synchronise with whoever publishes it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clientlib/ring/layout.h"
#include "clientlib/ring/segment.h"
#include "clientlib/ring/slot_layout.h"
#include "headrace/cursor.h"
#include "headrace/error.h"

namespace headrace::ring {

struct BatchInfo {
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;
  std::uint64_t position = 0;
  std::uint32_t rows = 0;
  std::uint32_t valid_rows = 0;
};

/// The right to write one slot. Move-only. Destroyed unpublished, it abandons the slot: under the same mutex
/// as RingWriter::abandon().
class LoanedSlot {
 public:
  LoanedSlot() = default;  ///< holds nothing
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
  ~RingWriter();
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  struct Options {
    std::string name;  ///< of the stream: appears in /proc/PID/maps
    std::vector<FieldSpec> fields;
    std::uint32_t rows = 0;  ///< batch size
    std::uint32_t slots = 0;
    std::uint32_t lanes = 0;  ///< the most clients attached at once
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
  struct Attachment {   ///< descriptors to send
    int data_fd;        ///< borrowed
    int control_fd;     ///< borrowed
    UniqueFd lease_fd;  ///< the caller's: drop it after sending (the ring keeps its mapping only)
  };
  /// A lease segment for an `attach`. Any thread, without the publisher's mutex: it takes system calls.
  [[nodiscard]] Result<Segment> make_lease() const;
  /// Gives the lane to the client that gets this lease segment and resets its LaneBlock. The lane must be
  /// unattached (asserted).
  Attachment attach(std::uint32_t lane, Segment lease);
  /// Drops the lease segment; a client that still looks at the lane finds itself fenced. Grants that were not
  /// acked are the ledger's business: their slots may be released only if that client is dead or was thrown
  /// out.
  void detach(std::uint32_t lane);
  [[nodiscard]] bool attached(std::uint32_t lane) const;
  /// Writes a grant (SYNC grant, SYNC client-sleeps). True: the client sleeps, the caller owes it wake().
  /// The caller bounds outstanding grants by kGrantRing.
  [[nodiscard]] bool write_grant(std::uint32_t lane, std::uint32_t slot, std::uint32_t seek);
  /// A system call, which takes microseconds if the client's core is idle: any thread, best without the
  /// publisher's mutex.
  void wake(std::uint32_t lane) const;
  /// Both at once.
  void grant(std::uint32_t lane, std::uint32_t slot, std::uint32_t seek) {
    if (write_grant(lane, slot, seek)) wake(lane);
  }
  /// Sets LaneState bits (they add up until the next attach) and wakes the client; a wake that just misses it
  /// falling asleep costs it kLongestSleep at most.
  void set_lane_state(std::uint32_t lane, std::uint32_t bits);
  /// True if acks wait to be taken: one load per lane (seq_cst for SYNC server-sleeps; a plain mov on x86),
  /// for polling between slices.
  [[nodiscard]] bool has_acks(std::uint32_t lane) const;
  /// Appends the acks that arrived since the last call. kBadMessage if the segment holds garbage (count
  /// jumped by more than kGrantRing, slot out of range): the caller drops that client. Whether (slot,
  /// generation) was really leased to this lane is checked by the ledger.
  Result<void> take_acks(std::uint32_t lane, std::vector<TakenAck>& out);
  /// Copies of the client's own statements, for metrics and for telling hung from dead.
  struct ClientWord {
    std::uint64_t heartbeat_ns, wait_ns, private_copies, staged_copies;
    std::optional<Cursor> consumed;  ///< its last commit, as it says: not checked; nullopt: none yet
  };
  [[nodiscard]] std::optional<ClientWord> client_word(std::uint32_t lane) const;

  void beat();  ///< stores the heartbeat; any thread
  /// SYNC server-sleeps; after set_idle(kServerRests) look for acks (has_acks) once more, then sleep. Any
  /// thread.
  void set_idle(ServerIdle idle);

  [[nodiscard]] const SlotLayout& layout() const { return layout_; }
  [[nodiscard]] std::uint32_t slot_count() const;
  [[nodiscard]] std::uint32_t lane_count() const;
  [[nodiscard]] std::uint64_t instance() const;
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  friend class LoanedSlot;
  struct Lane;
  RingWriter();
  [[nodiscard]] ControlHeader& header() const;
  [[nodiscard]] SlotDesc& slot(std::uint32_t index) const;
  [[nodiscard]] LaneBlock& block(std::uint32_t lane) const;
  [[nodiscard]] Lane& attached_lane(std::uint32_t lane) const;
  void step(std::uint32_t slot, SlotState from, std::uint64_t to_word);

  // Immutable after create.
  SlotLayout layout_;
  std::string name_;
  Segment data_;
  Segment control_;
  // Guarded by the caller's mutex.
  std::unique_ptr<Lane[]> lanes_;
  std::uint64_t last_generation_ = 0;
  std::uint64_t last_attachment_ = 0;
};

}  // namespace headrace::ring
