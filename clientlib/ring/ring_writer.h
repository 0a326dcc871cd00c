// The server's half of a ring: segments, slot words, grants out, acks in. It has no policy: server/publish
// decides which slot to fill and which lane to grant it to, and calls all members except the payload
// accessors under its mutex.
//
// Thread safety: `allocate`: one thread at a time, without the publisher's mutex. `loan`, `publish`,
// `abandon`, `release`, `grant`, `attach`, `detach`, `has_acks`, `take_acks`, `client_report`: one thread at
// a time (the publisher's mutex). Writing the payload of a LoanedSlot: any number of threads, which must then
// synchronize with the publishing thread.
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
  std::uint64_t checksum = 0;  ///< LoanedSlot::checksum()
};

/// The right to write one slot. Move-only. If it is destroyed unpublished, it abandons the slot, which needs
/// the same mutex as RingWriter::abandon().
class LoanedSlot {
 public:
  LoanedSlot() = default;  ///< holds nothing
  LoanedSlot(LoanedSlot&& other) noexcept;
  LoanedSlot& operator=(LoanedSlot&& other) noexcept;
  ~LoanedSlot();

  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  [[nodiscard]] SlotMemory memory() const;
  [[nodiscard]] std::byte* values(std::size_t field) const { return memory().values(field); }
  [[nodiscard]] std::int64_t* offsets(std::size_t field) const { return memory().offsets(field); }
  [[nodiscard]] RowDesc* rows() const { return memory().rows(); }
  /// The checksum of these rows, which must be complete; 0 if the ring has no checksums. Any thread may call
  /// it, without the mutex.
  [[nodiscard]] std::uint64_t checksum(std::uint32_t rows) const;

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
    std::string name;  ///< the stream's name; appears in /proc/PID/maps
    std::vector<FieldSpec> fields;
    std::uint32_t rows = 0;   ///< of the largest batch
    std::uint32_t slots = 0;  ///< the most that it can have; see allocate()
    std::uint32_t lanes = 0;  ///< the largest number of clients attached at once
    ClientAccess data_access = ClientAccess::kReadWrite;
    bool checksums = false;
  };
  /// The number of bytes of both segments once all slots have memory.
  static Result<std::uint64_t> bytes_needed(const Options& options);
  /// `allocated`: the number of slots that have memory from the start; the second form: all.
  static Result<std::unique_ptr<RingWriter>> create(const Options& options, std::uint32_t allocated);
  static Result<std::unique_ptr<RingWriter>> create(const Options& options) {
    return create(options, options.slots);
  }

  // --- slots
  /// Gives the first `slots` slots memory, if they have none yet; only they can be loaned. It makes system
  /// calls and touches new memory, so call it without the publisher's mutex. kNotEnoughMemory: no slot was
  /// added.
  Result<void> allocate(std::uint32_t slots);
  [[nodiscard]] std::uint32_t allocated() const;  ///< slots
  /// FREE -> FILLING with a new generation. The slot must be FREE (asserted).
  LoanedSlot loan(std::uint32_t slot);
  /// FILLING -> READY (SYNC publish-slot).
  void publish(LoanedSlot slot, const BatchInfo& info);
  /// FILLING -> FREE, without publishing.
  void abandon(LoanedSlot slot);
  /// READY -> FREE.
  void release(std::uint32_t slot);
  /// False: the READY slot does not have the bytes that its checksum was made of.
  [[nodiscard]] bool intact(std::uint32_t slot) const;
  [[nodiscard]] SlotState state(std::uint32_t slot) const;
  [[nodiscard]] std::uint64_t generation(std::uint32_t slot) const;

  // --- lanes
  struct Attachment {  ///< descriptors to send
    int data_fd;       ///< borrowed
    int control_fd;    ///< borrowed
    UniqueFd
        lease_fd;  ///< owned by the caller, which closes it after sending (the ring keeps only its mapping)
  };
  /// Creates a lease segment for an `attach`. Any thread; call without the publisher's mutex, because it
  /// makes system calls.
  [[nodiscard]] Result<Segment> make_lease() const;
  /// Attaches the client that receives this lease segment to the lane, and resets its LaneBlock. The lane
  /// must be unattached (asserted).
  Attachment attach(std::uint32_t lane, Segment lease);
  /// Drops the lease segment. A client that still uses the lane finds itself fenced. The ledger handles
  /// grants that were not acked: their slots may be released only if that client is dead or was evicted.
  void detach(std::uint32_t lane);
  [[nodiscard]] bool attached(std::uint32_t lane) const;
  /// Writes a grant (SYNC grant, SYNC client-sleeps). Returns true if the client sleeps: then the caller must
  /// call wake(). The caller must keep outstanding grants to at most kGrantRing.
  [[nodiscard]] bool write_grant(std::uint32_t lane, std::uint32_t slot, std::uint32_t seek);
  /// Wakes the client by a system call, which takes microseconds if the client's core is idle. Any thread,
  /// preferably without the publisher's mutex.
  void wake(std::uint32_t lane) const;
  /// grant() and, if needed, wake().
  void grant(std::uint32_t lane, std::uint32_t slot, std::uint32_t seek) {
    if (write_grant(lane, slot, seek)) wake(lane);
  }
  /// Sets LaneState bits (they accumulate until the next attach) and wakes the client. If the client just
  /// falls asleep and misses the wake, it notices after at most kLongestSleep.
  void set_lane_state(std::uint32_t lane, std::uint32_t bits);
  /// Whether there are unread acks: one load per lane (seq_cst for SYNC server-sleeps; a plain mov on x86),
  /// for polling between slices.
  [[nodiscard]] bool has_acks(std::uint32_t lane) const;
  /// Appends the acks that arrived since the last call. kBadMessage if the segment holds garbage (the count
  /// jumped by more than kGrantRing, or a slot is out of range): the caller must drop that client. The ledger
  /// checks whether (slot, generation) was really leased to this lane.
  Result<void> take_acks(std::uint32_t lane, std::vector<TakenAck>& out);
  /// A copy of the values in the client's lease segment, which nobody has checked. Metrics show them, and
  /// they tell a hung client from a dead one.
  struct ClientReport {
    std::uint64_t heartbeat_ns, wait_ns, private_copies, staged_copies;
    bool waiting;                    ///< it sleeps until the next grant
    std::optional<Cursor> consumed;  ///< its last commit, unchecked; nullopt: none yet
  };
  [[nodiscard]] std::optional<ClientReport> client_report(std::uint32_t lane) const;
  /// ClientReport::waiting; false for a lane without a client.
  [[nodiscard]] bool client_waits(std::uint32_t lane) const;

  void beat();  ///< stores the heartbeat; any thread
  /// SYNC server-sleeps. After set_idle(kServerRests), check for acks (has_acks) once more, then sleep. Any
  /// thread.
  void set_idle(ServerIdle idle);

  [[nodiscard]] const SlotLayout& layout() const { return layout_; }
  [[nodiscard]] std::uint32_t slot_count() const;
  [[nodiscard]] std::uint32_t lane_count() const;
  [[nodiscard]] std::uint64_t instance() const;
  [[nodiscard]] std::uint64_t bytes() const;  ///< of memory, in both segments

 private:
  friend class LoanedSlot;
  struct Lane;
  RingWriter();
  [[nodiscard]] ControlHeader& header() const;
  [[nodiscard]] SlotDesc& slot(std::uint32_t index) const;
  [[nodiscard]] LaneBlock& block(std::uint32_t lane) const;
  [[nodiscard]] Lane& attached_lane(std::uint32_t lane) const;
  void step(std::uint32_t slot, SlotState from, std::uint64_t to_word);
  [[nodiscard]] std::uint64_t checksum(std::uint32_t slot, std::uint32_t rows) const;

  // Immutable after create.
  SlotLayout layout_;
  bool checksums_ = false;
  std::string name_;
  Segment data_;
  Segment control_;
  // Guarded by the caller's mutex.
  std::unique_ptr<Lane[]> lanes_;
  std::uint64_t last_generation_ = 0;
  std::uint64_t last_attachment_ = 0;
};

}  // namespace headrace::ring
