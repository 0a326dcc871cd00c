// One stream at run time, in three parts: its lanes, the batches under construction, and its status.
//
// Thread safety: members marked [lock] are called under the engine's mutex; any thread may call the others.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clientlib/ring/ring_writer.h"
#include "clientlib/wire/protocol.h"
#include "headrace/stream_info.h"
#include "server/exec/fed_supply.h"
#include "server/exec/fill_job.h"
#include "server/exec/filler.h"
#include "server/exec/lanes.h"
#include "server/exec/sample_maker.h"
#include "server/exec/stream_status.h"
#include "server/source/formats/feed.h"

namespace headrace::server::exec {

struct StreamSetup {
  StreamInfo info;
  std::shared_ptr<const SampleMaker> maker;
  publish::Ledger::Options ledger;
  ring::ClientAccess data_access = ring::ClientAccess::kReadWrite;
  bool checksums = false;
  std::uint32_t wait_for = 1;               ///< clients of the gate's streams that must call next() first
  std::chrono::nanoseconds wait_timeout{};  ///< this long after the first one, those that have asked begin
  std::chrono::nanoseconds patience{};      ///< the longest wait of a client for one behind; 0: none
  std::shared_ptr<StartGate> gate;          ///< null: the stream makes its own
  /// Batches come from outside, each once (fed_supply.h). Null: they are made here.
  std::shared_ptr<source::Feed> feed;
};

/// The options of the ring that serves this number of clients.
[[nodiscard]] ring::RingWriter::Options ring_options(const StreamSetup& setup, std::uint32_t clients);

class Stream {
 public:
  /// Its ring has memory for one client.
  static Result<std::unique_ptr<Stream>> create(StreamSetup setup);
  ~Stream();  ///< the workers must have stopped; unfinished batches are abandoned

  [[nodiscard]] const StreamInfo& info() const { return setup_.info; }
  [[nodiscard]] const SampleMaker& maker() const { return *setup_.maker; }
  [[nodiscard]] const StreamStatus& status() const { return status_; }
  [[nodiscard]] StreamStatus& status() { return status_; }
  [[nodiscard]] const publish::Ledger::Options& sharing() const { return setup_.ledger; }
  [[nodiscard]] std::uint64_t ring_bytes() const { return ring_->bytes(); }
  /// Rows have been evicted from the CPU caches before they are read: see transform::Scratch::set_streamed.
  [[nodiscard]] bool streamed() const { return streamed_; }
  /// Allocates the ring memory that this number of clients needs, at most that of ring.max_clients. Call it
  /// before Lanes::open(), without the lock, from one thread at a time. kNotEnoughMemory.
  [[nodiscard]] Result<void> make_room(std::uint32_t clients) const;
  /// For Lanes::attach(); call it without the lock.
  [[nodiscard]] Result<ring::Segment> make_lease() const { return ring_->make_lease(); }
  [[nodiscard]] const std::shared_ptr<source::Feed>& feed() const { return setup_.feed; }

  /// Stops the stream for good; the first reason is kept.
  void stop(const Error& reason) { failure_.stop(reason); }
  /// stop() after an exception, with the message "DOING: ERROR"; ERROR is thrown().
  void stop_after(const char* doing, const char* error) noexcept;
  [[nodiscard]] bool failed() const { return status_.failed(); }
  [[nodiscard]] Error failure() const { return status_.failure(); }

  // --- [lock] work
  /// A job with rows to claim. Null: nothing to do.
  std::shared_ptr<FillJob> next_job(std::uint64_t now_ns);
  void complete(FillJob& job, metrics::StreamCounters& counters);
  /// Whether a batch is under construction. Workers do not complete batches of a failed stream.
  [[nodiscard]] bool filling() const { return filler_.filling() && !failed(); }
  /// Whether another process may make its rows; otherwise the reason.
  [[nodiscard]] std::string obstacle_to_orders() const;
  void order_from(RemoteOrders* orders) { filler_.order_from(orders); }  ///< see Filler
  /// How long a worker's recent run on this stream took; a large value before the first run.
  [[nodiscard]] std::uint64_t run_ns() const { return run_ns_; }
  [[nodiscard]] std::uint64_t worked_ns() const { return worked_ns_; }  ///< by all workers so far
  void note_run(std::uint64_t ns) {
    run_ns_ = (3 * run_ns_ + ns) / 4;
    worked_ns_ += ns;
  }
  /// Processes acks and writes the grants that are due. False: nothing changed.
  bool pump(std::uint64_t now_ns);
  void publish_figures();  ///< into the status, if they changed
  [[nodiscard]] ring::RingWriter& ring() { return *ring_; }

  // --- [lock] clients; lanes() has what concerns only lanes
  [[nodiscard]] Lanes& lanes() { return lanes_; }
  [[nodiscard]] const Lanes& lanes() const { return lanes_; }
  void close(std::uint32_t lane, std::uint64_t now_ns);
  /// `damaged`: see Lanes::request_again.
  wire::CursorSetReply seek(std::uint32_t lane, const Cursor& cursor,
                            const std::optional<wire::DamagedSlot>& damaged = {});
  std::vector<std::uint32_t> fence_stuck(std::uint64_t now_ns, std::uint64_t evict_after_ns);
  void drain();
  void beat(std::uint64_t now_ns, std::uint64_t grace_ns);

  // --- [lock] streams with a feed
  void batches_arrived();                     ///< batches that the feed has accepted may be built
  void end_feed(std::string why, bool done);  ///< FedSupply::finish
  /// After the end: every client was granted all batches and has released them.
  [[nodiscard]] bool served_to_end() const;

 private:
  explicit Stream(StreamSetup setup, std::unique_ptr<ring::RingWriter> ring);
  void announce_stop(const Error& reason) const;
  [[nodiscard]] Supply& supply() { return fed_ ? *fed_ : endless_; }

  const StreamSetup setup_;
  const bool streamed_;
  const std::unique_ptr<ring::RingWriter> ring_;
  Failure failure_;
  StreamStatus status_;
  Supply endless_;                        ///< used if there is no feed
  const std::unique_ptr<FedSupply> fed_;  ///< null: there is no feed
  Lanes lanes_;
  Filler filler_;
  StreamFigures published_;
  std::uint64_t run_ns_ = 1'000'000, worked_ns_ = 0;
};

}  // namespace headrace::server::exec
