// One stream at run time: its sample maker, its ring, and the ledger and groups that decide about the ring.
//
// Thread safety: members marked [lock] are called under the engine's mutex; the others from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "clientlib/ring/ring_writer.h"
#include "clientlib/wire/protocol.h"
#include "headrace/stream_info.h"
#include "server/exec/fill_job.h"
#include "server/exec/sample_maker.h"
#include "server/publish/groups.h"
#include "server/publish/ledger.h"
#include "server/source/formats/feed.h"

namespace headrace::server::exec {

struct StreamSetup {
  StreamInfo info;
  std::shared_ptr<const SampleMaker> maker;
  publish::Ledger::Options ledger;
  ring::ClientAccess data_access = ring::ClientAccess::kReadWrite;
  std::uint32_t wait_for = 1;               ///< clients that must be there before the first batch is granted
  std::chrono::nanoseconds wait_timeout{};  ///< then the ones that are there begin
  /// Of a live stream: batches come from outside, each once, and exist once they came (stream_live.cpp).
  std::shared_ptr<source::Feed> feed;
};

/// A client's place in a stream, from `open` on.
struct Lane {
  bool used = false;
  bool attached = false;
  bool sink = false;  ///< the server's own: grants are acked at once (bench)
  publish::Group* group = nullptr;
  publish::Member* member = nullptr;
  std::string group_name, client;
  std::uint32_t rank = 0;
  bool comes_back = false;  ///< within its process, in the middle of a loop
  Cursor begin;             ///< where it began, or was last sought to
  std::uint64_t last_beat_ns = 0, last_beat_value = 0;
  std::string
      offence;  ///< what was wrong in its segment: it is not listened to any more, and is to be dropped
  bool fenced = false;
  bool told_end = false;
  bool told_failure = false;
};

class Stream {
 public:
  static Result<std::unique_ptr<Stream>> create(StreamSetup setup);
  ~Stream();  ///< the workers must have stopped; what they left unfinished is abandoned

  [[nodiscard]] const StreamInfo& info() const { return setup_.info; }
  /// Whether a batch is being made. What a stream that stopped has left of one, nobody makes any more.
  [[nodiscard]] bool filling() const { return !jobs_.empty() && !failed(); }
  /// Rows have left the caches before they are read: see transform::Scratch::set_streamed.
  [[nodiscard]] bool streamed() const { return streamed_; }
  [[nodiscard]] const SampleMaker& maker() const { return *setup_.maker; }
  /// For `attach`; made outside of the lock.
  [[nodiscard]] Result<ring::Segment> make_lease() const { return ring_->make_lease(); }

  /// Stops the stream for good; the first reason is kept.
  void stop(const Error& reason);
  /// stop() after an exception, with the message "DOING: ERROR".
  void stop_after(const char* doing, const char* error) noexcept;
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] Error failure() const;

  // --- [lock] work
  /// The oldest job with rows to claim whose samples are there, or a new one for the lane whose ring is
  /// emptiest. Null: nothing to do.
  std::shared_ptr<FillJob> next_job(std::uint64_t now_ns);
  /// READY, or free again if nobody wants it or the stream failed.
  void complete(FillJob& job, metrics::StreamCounters& counters);
  /// How long a worker is away on this stream's work, lately; long until it was tried.
  [[nodiscard]] std::uint64_t turn_ns() const { return turn_ns_; }
  void note_turn(std::uint64_t ns) { turn_ns_ = (3 * turn_ns_ + ns) / 4; }
  /// Takes acks in and gives out the grants that are due. False: nothing changed.
  bool pump(std::uint64_t now_ns);
  /// The lanes, as bits, whose sleeping clients were granted batches since the last call: the caller owes
  /// them ring().wake() once it has given up the lock.
  [[nodiscard]] std::uint64_t take_wakes() { return std::exchange(to_wake_, 0); }
  /// How empty the emptiest lane's ring is: batches ahead over quota; 2 without lanes.
  [[nodiscard]] double fullness() const;

  // --- [lock] lanes
  Result<wire::OpenReply> open(const wire::OpenRequest& request);
  ring::RingWriter::Attachment attach(std::uint32_t lane, ring::Segment lease, std::uint64_t now_ns);
  /// A lane of the server's own that consumes at once, without a client.
  Result<std::uint32_t> open_sink();
  /// Leases freed, pending cancelled, the member remembered.
  void close(std::uint32_t lane, std::uint64_t now_ns);
  wire::CursorSetReply seek(std::uint32_t lane, const Cursor& cursor);
  /// Why the lane gets no further batches: the stream failed, or a live one has ended and the lane has all.
  [[nodiscard]] std::optional<Error> failure_of(std::uint32_t lane) const;
  /// Lanes whose segments hold garbage, with the reason: to be dropped.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, std::string>> offenders() const;
  /// Acks of an attached client wait to be taken.
  [[nodiscard]] bool has_acks() const;
  /// Fences lanes whose heartbeat stands still since `evict_after`. Returns those newly fenced.
  std::vector<std::uint32_t> fence_stuck(std::uint64_t now_ns, std::uint64_t evict_after_ns);
  void drain();
  /// True once nobody holds a lease.
  [[nodiscard]] bool drained() const;
  void beat(std::uint64_t now_ns, std::uint64_t grace_ns);
  Result<wire::CursorGetReply> cursors(const std::string& group) const;

  // --- [lock] live streams: a client begins at the oldest batch that can still be had, and never goes back
  [[nodiscard]] bool live() const { return setup_.feed != nullptr; }  ///< without the lock, too
  [[nodiscard]] const std::shared_ptr<source::Feed>& feed() const { return setup_.feed; }
  /// Batches that the feed has accepted may be built.
  void arrived();
  /// No further batches come: clients get those that there are, then kStreamFailed, with `why`. `done`: these
  /// are all that there were to be. The first end is kept.
  void end(std::string why, bool done);
  [[nodiscard]] bool ended() const { return end_.has_value(); }
  /// After the end: every client was handed all there is, and let go of it.
  [[nodiscard]] bool served_to_end() const;
  /// kInvalidArgument on a live stream: whoever leaves out batches there takes and drops them. kStreamFailed
  /// where failure_of() says so.
  [[nodiscard]] Result<void> may_seek(std::uint32_t lane) const;

  // --- [lock] for metrics
  [[nodiscard]] const std::vector<Lane>& lanes() const { return lanes_; }
  [[nodiscard]] const publish::Ledger& ledger() const { return ledger_; }
  [[nodiscard]] ring::RingWriter& ring() { return *ring_; }
  [[nodiscard]] std::uint64_t leases_reclaimed() const { return leases_reclaimed_; }
  [[nodiscard]] std::uint64_t blocked_ns(std::uint64_t now_ns) const;
  /// Clients that must still come before the first batch is granted (`wait_for`).
  [[nodiscard]] std::uint32_t awaited_clients() const;
  [[nodiscard]] std::uint64_t built_by_rank(std::uint32_t rank) const;
  [[nodiscard]] std::uint64_t last_batch_ns() const { return last_batch_ns_; }  ///< 0: none yet
  /// Of the client that is farthest, or was when it left.
  [[nodiscard]] publish::Place foremost() const;
  [[nodiscard]] std::size_t active_jobs() const { return jobs_.size(); }
  [[nodiscard]] std::vector<std::pair<std::uint32_t, std::uint32_t>> missing_ranks() const;

 private:
  explicit Stream(StreamSetup setup);
  /// Null: it threw, and the stream has stopped.
  std::shared_ptr<FillJob> start_job(const publish::Ledger::Fill& fill);
  // stream_reads.cpp
  [[nodiscard]] std::vector<std::uint64_t> samples_of(std::uint64_t epoch,
                                                      const sampler::BatchRows& rows) const;
  /// Those that the cache `decoded` does not hold yet.
  [[nodiscard]] std::vector<std::uint64_t> to_read(std::vector<std::uint64_t> samples) const;
  /// Has the samples of a batch that is opened read, then those of the batches behind it. Gives the batch's;
  /// none if the stream does not read ahead.
  std::vector<std::uint64_t> expect_reads(const publish::Ledger::Fill& fill, const sampler::BatchRows& rows);
  void look_ahead(const publish::Ledger::Fill& fill);
  /// Of batches that no lane comes to any more: one went, or was sought elsewhere.
  void forget_reads() noexcept;
  void forget_unwanted();
  /// False: it was not expected.
  bool unexpect(const std::pair<std::uint32_t, Cursor>& batch);
  [[nodiscard]] std::optional<std::uint32_t> foremost_lane() const;
  [[nodiscard]] std::optional<Cursor> meeting_point() const;
  [[nodiscard]] Result<void> may_join(const wire::OpenRequest& request) const;
  [[nodiscard]] Cursor oldest_batch() const;                       ///< that a new lane can have
  [[nodiscard]] std::uint64_t number(const Cursor& cursor) const;  ///< through all epochs
  [[nodiscard]] Cursor cursor_of(std::uint64_t number) const;
  /// A lane was opened and its client has not attached yet: what it was promised must not be granted away.
  [[nodiscard]] bool expects_client() const;
  void tell_end();
  void tell_failure();
  [[nodiscard]] Error end_error() const;
  [[nodiscard]] bool gate_open(std::uint64_t now_ns);
  [[nodiscard]] std::uint32_t attached_lanes() const;
  [[nodiscard]] Cursor consumed_by(std::uint32_t lane) const;
  /// For the lane whose ring is emptiest. `freed`: slots were given up on the way.
  std::optional<publish::Ledger::Fill> take_fill(bool& freed);
  void give_grants(std::uint64_t now_ns);
  bool free_slots();  ///< false: there were none to free

  StreamSetup setup_;
  std::uint32_t slice_;
  bool streamed_;
  std::unique_ptr<ring::RingWriter> ring_;
  publish::Ledger ledger_;
  publish::Groups groups_;
  std::vector<Lane> lanes_;
  std::deque<std::shared_ptr<FillJob>> jobs_;
  /// Owner and cursor of batches that are not opened yet and whose samples are expected.
  std::map<std::pair<std::uint32_t, Cursor>, sampler::BatchRows> expected_;
  std::uint64_t expected_rows_ = 0;
  std::vector<std::uint64_t> built_by_rank_;
  std::uint64_t first_attach_ns_ = 0, blocked_since_ns_ = 0, blocked_total_ns_ = 0, leases_reclaimed_ = 0,
                last_batch_ns_ = 0;
  std::uint64_t turn_ns_ = 1'000'000;
  std::uint64_t to_wake_ = 0;  ///< lanes, as bits
  bool gate_passed_ = false, draining_ = false, told_of_detachment_ = false;
  publish::Place last_place_;
  struct End {
    std::uint64_t batches = 0;
    std::string why;
    bool done = false;  ///< as its feeder meant it
  };
  std::optional<End> end_;
  std::uint64_t built_ = 0;  ///< of a live stream: every batch before this one was built
  // scratch, kept to spare allocations per batch
  std::vector<publish::Ledger::Order> orders_;
  std::vector<std::uint32_t> freed_;
  std::vector<ring::TakenAck> acks_;

  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  Error failure_;
};

}  // namespace headrace::server::exec
