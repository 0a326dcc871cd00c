// The batches of a stream that are under construction. Thread safety: the engine's mutex guards all of it
// except the jobs that it hands out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "clientlib/ring/ring_writer.h"
#include "server/exec/fill_job.h"
#include "server/exec/lanes.h"
#include "server/exec/look_ahead.h"
#include "server/exec/remote_batch.h"
#include "server/exec/sample_maker.h"
#include "server/exec/supply.h"

namespace headrace::server::exec {

class Stream;

class Filler {
 public:
  /// All references must outlive it.
  Filler(Stream& stream, const FillRules& rules, ring::RingWriter& ring, Supply& supply, Lanes& lanes);

  /// The oldest job that has unclaimed rows with their samples read, or else a new one for the lane with the
  /// emptiest ring. Null: nothing to do, or streams that share rows wait for clients (Lanes::holds_back()).
  std::shared_ptr<FillJob> next_job(std::uint64_t now_ns);
  /// The slot becomes READY; it becomes free if no lane wants it any more or the stream failed.
  void complete(FillJob& job, metrics::StreamCounters& counters);
  [[nodiscard]] bool filling() const { return !jobs_.empty(); }
  /// Orders batches there from now on; null: nowhere. It must outlive the next call.
  void order_from(RemoteOrders* orders) { orders_ = orders; }
  [[nodiscard]] LookAhead& look_ahead() { return look_ahead_; }
  void publish(StreamFigures& figures) const;

 private:
  /// Null: an exception stopped the stream.
  std::shared_ptr<FillJob> start_job(const publish::Ledger::Fill& fill);
  /// An order for this batch; null: it is made here.
  std::shared_ptr<RemoteBatch> order(const publish::Ledger::Fill& fill, const sampler::BatchRows& rows,
                                     bool others_need);
  /// Orders the batches for which there are slots, until one cannot be ordered.
  void order_batches(std::uint64_t now_ns);
  /// Takes back the last order, if a client waits; the workers have nothing else to do. Null: none waits, or
  /// there is no order.
  std::shared_ptr<FillJob> take_back();
  void end_blocked(std::uint64_t now_ns);

  Stream& stream_;
  const FillRules rules_;
  ring::RingWriter& ring_;
  Supply& supply_;
  Lanes& lanes_;
  LookAhead look_ahead_;
  RemoteOrders* orders_ = nullptr;
  std::deque<std::shared_ptr<FillJob>> jobs_;
  std::uint64_t blocked_since_ns_ = 0, blocked_total_ns_ = 0, last_batch_ns_ = 0;
};

}  // namespace headrace::server::exec
