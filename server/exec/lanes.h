// The clients of a stream: which may attach, where each begins, which batches they are granted and which they
// have released.
//
// Thread safety: the engine's mutex guards all members.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "clientlib/ring/ring_writer.h"
#include "clientlib/wire/protocol.h"
#include "headrace/stream_info.h"
#include "server/exec/sample_maker.h"
#include "server/exec/start_gate.h"
#include "server/exec/stream_status.h"
#include "server/exec/supply.h"
#include "server/publish/fill_order.h"
#include "server/publish/groups.h"
#include "server/publish/ledger.h"

namespace headrace::server::exec {

/// A client, from `open` on.
struct Lane {
  bool used = false;
  bool attached = false;
  bool sink = false;  ///< internal to the server: its grants are acked at once (bench)
  publish::Group* group = nullptr;
  publish::Member* member = nullptr;
  std::string group_name, client;
  std::uint32_t rank = 0;
  bool reattaches = false;  ///< within its process, in the middle of a loop
  bool resumes = false;     ///< it reattaches after it was granted a batch, by this server or by one before
  Cursor begin;             ///< where it began, or where its last seek went
  Cursor consumed;          ///< what its loop has consumed, until it commits
  std::uint64_t last_beat_ns = 0, last_beat_value = 0;
  std::uint64_t granted = 0;         ///< samples
  std::uint64_t first_grant_ns = 0;  ///< 0: none yet
  /// Why its lease segment is invalid: its acks are ignored, and the session drops the client.
  std::string protocol_error;
  bool asked = false;  ///< its client has asked for a batch
  bool fenced = false;
  bool failure_announced = false, wait_announced = false;
  bool begins_late = false;    ///< more than max_lag behind: other clients may begin there soon
  bool reported_late = false;  ///< it was reported as late, and has not caught up since
  bool detachment_announced = false;
  std::uint64_t detached_since_ns = 0;  ///< 0: it is within max_lag
  /// By slot: the generation that its client reported as damaged last. The server checks each one once.
  std::map<std::uint32_t, std::uint64_t> reported;
};

/// For messages.
inline double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

class Lanes {
 public:
  struct Options {
    publish::Ledger::Options ledger;
    std::uint32_t wait_for = 1;               ///< clients of the gate's streams that must call next() first
    std::chrono::nanoseconds wait_timeout{};  ///< this long after the first one, those that have asked begin
    std::chrono::nanoseconds patience{};      ///< the longest wait of a client for one behind; 0: none
  };
  /// All references must outlive it.
  Lanes(const StreamInfo& info, const Options& options, ring::RingWriter& ring, Supply& supply,
        StreamStatus& status, const SampleMaker& maker, std::shared_ptr<StartGate> gate);

  // --- clients
  /// Errors of open() that do not depend on the client's group.
  [[nodiscard]] Result<void> check(const wire::OpenRequest& request) const;
  /// Stream::make_room() must have made room for one client more than used_count().
  Result<wire::AttachReply> open(const wire::OpenRequest& request);
  ring::RingWriter::Attachment attach(std::uint32_t lane, ring::Segment lease, std::uint64_t now_ns);
  /// A lane without a client, which releases every batch at once.
  Result<std::uint32_t> open_sink();
  /// Frees leases, cancels pending batches and remembers the member. False: the lane was not used.
  bool close(std::uint32_t lane, std::uint64_t now_ns);
  wire::CursorSetReply seek(std::uint32_t lane, const Cursor& cursor);
  /// The lane wants `batch` again, because the slot that it got is damaged. If that is so, no other lane gets
  /// that slot either.
  wire::CursorSetReply request_again(std::uint32_t lane, const Cursor& batch,
                                     const wire::DamagedSlot& damaged);
  /// Why the lane gets no further batches: the stream failed, or its feed ended and the lane has had them
  /// all.
  [[nodiscard]] std::optional<Error> failure_of(std::uint32_t lane) const;
  /// kInvalidArgument if this stream's clients cannot seek; kStreamFailed where failure_of() says so.
  [[nodiscard]] Result<void> may_seek(std::uint32_t lane) const;
  /// Lanes with an invalid lease segment, with the reason; the caller drops these clients.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, std::string>> protocol_errors() const;
  /// Fences lanes whose heartbeat has not changed for `evict_after_ns`. Returns the newly fenced ones.
  std::vector<std::uint32_t> fence_stuck(std::uint64_t now_ns, std::uint64_t evict_after_ns);
  void drain();
  [[nodiscard]] bool draining() const { return draining_; }
  [[nodiscard]] bool drained() const;  ///< no lane holds a lease
  void forget_groups(std::uint64_t before_ns) { groups_.forget(before_ns); }
  [[nodiscard]] Result<wire::CursorGetReply> cursors(const std::string& group) const;
  /// A lane is open whose client has not attached yet.
  [[nodiscard]] bool expects_client() const;
  /// Every client was granted all batches before the end and holds no lease. Call it only after Supply's end.
  [[nodiscard]] bool all_served() const;

  // --- slots
  [[nodiscard]] bool has_acks() const;
  /// Processes acks. False: there were none.
  bool take_acks();
  /// Writes the grants that are due. False: there were none.
  bool write_grants(std::uint64_t now_ns);
  /// Warns of clients that have been beyond max_lag for some seconds, once for each, except for those that
  /// began there, which report_late() has logged. To be called several times a second.
  void report_detachments(std::uint64_t now_ns);
  /// Decides which client yields the workers to another one. To be called after acks and grants.
  void update_order(std::uint64_t now_ns);
  /// Tells each client once that it gets no further batches. Only once, because it takes a system call and
  /// the client may stay attached for long.
  void announce_failure();
  /// A slot to fill, for the first lane of the FillOrder that can have one. `freed`: other slots were freed
  /// on the way.
  std::optional<publish::Ledger::Fill> take_fill(bool& freed);
  /// The lanes that get a new batch, if the window should keep its rows because other lanes need them;
  /// nullopt: no other lane does. `or_may`: also if clients that may begin soon would need the rows.
  [[nodiscard]] std::optional<RowWindow::Lanes> others_need(const publish::Ledger::Fill& fill,
                                                            const sampler::BatchRows& rows,
                                                            bool or_may) const;
  /// The lanes, one bit each, that were granted batches since the last call while their clients slept: the
  /// caller must call ring().wake() for them after it releases the lock.
  [[nodiscard]] std::uint64_t take_wakes() { return std::exchange(to_wake_, 0); }
  /// Fill level of the emptiest lane's ring, of those that do not yield: batches ahead divided by the quota;
  /// 2 without such lanes.
  [[nodiscard]] double fullness() const;

  /// Lanes, one bit each, whose client lacks a batch.
  [[nodiscard]] std::uint64_t starved() const;

  // --- for the stream
  [[nodiscard]] const std::vector<Lane>& all() const { return lanes_; }
  [[nodiscard]] publish::Ledger& ledger() { return ledger_; }
  [[nodiscard]] const publish::Ledger& ledger() const { return ledger_; }
  [[nodiscard]] std::uint32_t open_count() const { return open_; }
  [[nodiscard]] std::uint32_t used_count() const;  ///< clients, from open() to close()
  [[nodiscard]] std::uint32_t batch_size() const { return info_.batch_size; }
  /// True while no batch may be begun: rows made before the gate opens would be decoded again for clients
  /// that are still missing.
  [[nodiscard]] bool holds_back() const {
    return gate_->stream_count() > 1 && !gate_->is_open(options_.wait_for);
  }
  [[nodiscard]] std::uint32_t awaited_clients() const;
  /// Writes what changed since the last call into the status; `figures` receives the sums over lanes.
  void publish(StreamFigures& figures);

 private:
  /// The foremost open lane outside of `except` that is not fenced.
  [[nodiscard]] std::optional<std::uint32_t> foremost(const publish::Group* except) const;
  [[nodiscard]] std::optional<Cursor> join_cursor() const;
  [[nodiscard]] std::optional<std::uint32_t> hindmost() const;  ///< of the lanes that are not fenced
  [[nodiscard]] std::optional<Cursor> hindmost_next() const;
  [[nodiscard]] Cursor consumed_by(std::uint32_t lane) const;
  wire::CursorSetReply move(std::uint32_t lane, const Cursor& cursor);
  void reject(std::uint32_t lane, const wire::DamagedSlot& damaged);
  /// How far a client that continues at `next` had consumed; it may have fetched batches ahead.
  [[nodiscard]] static Cursor consumed_before(const publish::Group& group, const publish::Member& former,
                                              const Cursor& next);
  /// Counts this stream's clients for the gate.
  void count_clients(std::uint64_t now_ns);
  [[nodiscard]] bool try_open_gate(std::uint64_t now_ns);
  [[nodiscard]] bool has_asked(std::uint32_t lane) const;
  void open_ledger(std::uint32_t lane);
  /// Lanes, one bit each, whose next rows the window has.
  [[nodiscard]] std::uint64_t kept_lanes() const;
  void forget_order(std::uint32_t lane);
  void report_waits(std::uint64_t lanes);  ///< logs the lanes that begin to wait, each once
  /// Logs by how many batches a new client begins behind the foremost one, if by more than max_lag. Returns
  /// wire::AttachReply::batches_behind.
  std::uint32_t report_late(Lane& late, const wire::OpenRequest& request) const;
  void announce_detachment(const Lane& lane) const;
  void count_missing_ranks();
  bool free_slots();  ///< false: there was none to free
  void move_in_window(std::uint32_t lane) const;
  void changed(std::uint32_t lane) { changed_ |= std::uint64_t{1} << lane; }

  const StreamInfo& info_;
  const Options options_;
  ring::RingWriter& ring_;
  Supply& supply_;
  StreamStatus& status_;
  const SampleMaker& maker_;
  publish::Ledger ledger_;
  publish::FillOrder fill_order_;
  publish::Groups groups_;
  std::vector<Lane> lanes_;
  const std::shared_ptr<StartGate> gate_;
  const std::size_t gate_index_;             ///< this stream's index there
  std::uint32_t open_ = 0, attached_ = 0;    ///< lanes
  std::uint64_t changed_ = 0, to_wake_ = 0;  ///< one bit per lane
  std::uint64_t first_ask_ns_ = 0;           ///< 0: none of this stream's clients has called next()
  std::uint64_t leases_reclaimed_ = 0, checksum_mismatches_ = 0, missing_ranks_ = 0, granted_ = 0;
  bool draining_ = false;
  // reused, to save allocations per batch
  std::vector<publish::Ledger::Order> orders_;
  std::vector<std::uint32_t> freed_;
  std::vector<ring::TakenAck> acks_;
};

}  // namespace headrace::server::exec
