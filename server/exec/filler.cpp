#include "server/exec/filler.h"

#include <algorithm>
#include <utility>

#include "clientlib/base/thrown.h"
#include "clientlib/ring/futex.h"
#include "server/exec/stream.h"

namespace headrace::server::exec {
Filler::Filler(Stream& stream, const FillRules& rules, ring::RingWriter& ring, Supply& supply, Lanes& lanes)
    : stream_(stream),
      rules_(rules),
      ring_(ring),
      supply_(supply),
      lanes_(lanes),
      look_ahead_(rules.maker, lanes) {}

std::shared_ptr<FillJob> Filler::next_job(std::uint64_t now_ns) {
  if (orders_ != nullptr && !lanes_.holds_back()) order_batches(now_ns);
  for (const auto& job : jobs_)
    if (job->unclaimed() && job->ready()) return job;
  if (lanes_.holds_back()) {
    end_blocked(now_ns);
    return nullptr;
  }
  for (;;) {
    bool freed = false;
    if (const auto fill = lanes_.take_fill(freed)) {
      end_blocked(now_ns);
      // While samples are being read, those of the next batch may already be there.
      auto job = start_job(*fill);
      if (!job || job->ready()) return job;
      continue;
    }
    // A lane may have joined ready batches. A worker that finds nothing goes to sleep, so a change made in
    // this check requires another one.
    const bool granted = lanes_.write_grants(now_ns);
    if (!freed && !granted) break;
  }
  if (orders_ != nullptr)
    if (auto job = take_back()) return job;
  const bool anyone = lanes_.open_count() > 0;
  if (anyone && jobs_.empty() && !blocked_since_ns_) blocked_since_ns_ = now_ns;
  if (!anyone) end_blocked(now_ns);
  return nullptr;
}

void Filler::end_blocked(std::uint64_t now_ns) {
  if (blocked_since_ns_) blocked_total_ns_ += now_ns - blocked_since_ns_;
  blocked_since_ns_ = 0;
}

std::shared_ptr<FillJob> Filler::start_job(const publish::Ledger::Fill& fill) try {
  const Lane& lane = lanes_.all()[fill.lane];
  const Cursor& cursor = fill.key.cursor;
  const sampler::BatchRows rows = lane.group->plan->rows(cursor.origin, cursor.batch, lane.rank);
  ring::LoanedSlot slot = ring_.loan(fill.slot);
  // With a bridge, other nodes can make rows again for clients that may begin soon.
  const auto others_need = lanes_.others_need(fill, rows, orders_ == nullptr);
  auto ordered = orders_ == nullptr ? nullptr : order(fill, rows, others_need.has_value());
  auto expected = ordered ? look_ahead_.leave_out(fill, rows) : look_ahead_.expect(fill, rows);
  auto job =
      std::make_shared<FillJob>(rules_, slot.memory(), fill.key, rows, rules_.maker.order(cursor.epoch),
                                std::move(expected), others_need, std::move(ordered));
  jobs_.push_back(job);  // the last step that may throw: before it, ~LoanedSlot abandons the slot
  job->slot = std::move(slot);
  supply_.started(cursor);
  stream_.status().started(lane.rank);
  return job;
} catch (...) {
  lanes_.ledger().discard(fill.slot);
  stream_.stop_after("could not start a batch", thrown());
  return nullptr;
}

std::shared_ptr<RemoteBatch> Filler::order(const publish::Ledger::Fill& fill, const sampler::BatchRows& rows,
                                           bool others_need) {
  // Rows for the window, or from it, cost less here. Not so if it is full: a client that reads nothing for
  // long keeps all of its rows.
  if (const RowWindow* const window = rules_.maker.window()) {
    const auto first = window->number(fill.key.cursor.epoch, rows.first);
    if ((others_need && window->room() > 0) || (first && window->has(*first))) return nullptr;
  }
  if (rows.first + rows.rows > rules_.maker.size()) return nullptr;  // it wraps around its epoch: rare
  const bool waits = (lanes_.starved() >> fill.lane & 1) != 0;
  return orders_->order(fill.key.cursor.epoch, rows, waits ? 0 : lanes_.ledger().ahead(fill.lane));
}

void Filler::order_batches(std::uint64_t now_ns) {
  bool freed = false;  // next_job() finds these slots
  while (orders_->has_room()) {
    const auto fill = lanes_.take_fill(freed);
    if (!fill) return;
    end_blocked(now_ns);
    const auto job = start_job(*fill);
    if (!job || !job->remote) return;
  }
}

std::shared_ptr<FillJob> Filler::take_back() {
  if (lanes_.starved() == 0) return nullptr;
  // Nobody may have begun to make the last one, and the others arrive sooner.
  const auto last = std::find_if(jobs_.rbegin(), jobs_.rend(),
                                 [](const auto& job) { return job->remote && job->remote->awaited(); });
  if (last == jobs_.rend() || !(*last)->remote->take_back()) return nullptr;
  return *last;
}

void Filler::complete(FillJob& job, metrics::StreamCounters& counters) {
  ring::LoanedSlot slot = std::move(*job.slot);
  job.slot.reset();
  const std::uint32_t index = slot.index();
  const Cursor& cursor = job.key.cursor;
  if (stream_.failed()) {
    lanes_.ledger().discard(index);
    ring_.abandon(std::move(slot));
  } else if (!lanes_.ledger().filled(index)) {
    ring_.abandon(std::move(slot));
  } else {
    ring_.publish(std::move(slot), {.epoch = cursor.epoch,
                                    .batch = cursor.batch,
                                    .position = job.rows.first,
                                    .rows = job.rows.rows,
                                    .valid_rows = job.rows.valid,
                                    .checksum = job.checksum});
    last_batch_ns_ = ring::monotonic_ns();
    counters.batches.add(1);
    counters.published_bytes.add(job.bytes());
  }
  supply_.completed(cursor);
  std::erase_if(jobs_, [&](const auto& other) { return other.get() == &job; });
}

void Filler::publish(StreamFigures& figures) const {
  figures.jobs = jobs_.size();
  figures.blocked_ns = blocked_total_ns_;
  figures.blocked_since_ns = blocked_since_ns_;
  figures.last_batch_ns = last_batch_ns_;
}

}  // namespace headrace::server::exec
