// Stream: what it tells its read-ahead of the samples to come.
#include <algorithm>

#include "server/exec/stream.h"

namespace headrace::server::exec {

using Urgency = io::ReadAhead::Urgency;

std::vector<std::uint64_t> Stream::samples_of(std::uint64_t epoch, const sampler::BatchRows& rows) const {
  const sampler::EpochOrder order = maker().order(epoch);
  const std::uint64_t size = maker().size();
  std::vector<std::uint64_t> samples(rows.rows);
  for (std::uint32_t i = 0; i < rows.rows; ++i) samples[i] = order((rows.first + i) % size);
  return samples;
}

std::vector<std::uint64_t> Stream::to_read(std::vector<std::uint64_t> samples) const {
  std::erase_if(samples, [this](std::uint64_t sample) { return !maker().reads(sample); });
  return samples;
}

std::vector<std::uint64_t> Stream::expect_reads(const publish::Ledger::Fill& fill,
                                                const sampler::BatchRows& rows) {
  auto* const reads = maker().read_ahead();
  if (reads == nullptr) return {};
  auto samples = samples_of(fill.key.cursor.epoch, rows);
  if (!unexpect({fill.key.owner, fill.key.cursor})) reads->expect(to_read(samples), Urgency::kNext);
  look_ahead(fill);
  return samples;
}

void Stream::look_ahead(const publish::Ledger::Fill& fill) {
  const Lane& lane = lanes_[fill.lane];
  const sampler::EpochPlan& plan = *lane.group->plan;
  io::ReadAhead& reads = *maker().read_ahead();
  // Ranks share nothing: each has its share of what there is. Who shares batches shares their samples.
  std::uint64_t room = reads.ahead();
  if (fill.key.owner != publish::BatchKey::kEveryone) {
    std::uint64_t open = 0;
    for (std::uint32_t index = 0; index < lanes_.size(); ++index) open += ledger_.is_open(index);
    room /= std::max<std::uint64_t>(open, 1);
  }
  // At least the next batch: reads go on while this one's last rows are made.
  Cursor cursor = fill.key.cursor;
  for (bool next = true;; next = false) {
    cursor = publish::advance(plan, cursor);
    const sampler::BatchRows rows = plan.rows(cursor.origin, cursor.batch, lane.rank);
    if (!next && rows.rows > room) return;
    room -= std::min<std::uint64_t>(room, rows.rows);
    const std::pair batch(fill.key.owner, cursor);
    if (ledger_.holds({cursor, fill.key.owner}) || expected_.contains(batch)) continue;
    if (!next && expected_rows_ + rows.rows > reads.ahead()) return;  // lanes that went apart
    expected_.emplace(batch, rows);
    expected_rows_ += rows.rows;
    reads.expect(to_read(samples_of(cursor.epoch, rows)), Urgency::kLater);
  }
}

bool Stream::unexpect(const std::pair<std::uint32_t, Cursor>& batch) {
  const auto found = expected_.find(batch);
  if (found == expected_.end()) return false;
  expected_rows_ -= found->second.rows;
  expected_.erase(found);
  return true;
}

void Stream::forget_reads() noexcept {
  if (expected_.empty()) return;
  try {
    forget_unwanted();
  } catch (...) {
    expected_.clear();
    expected_rows_ = 0;
    maker().read_ahead()->clear();
  }
}

void Stream::forget_unwanted() {
  io::ReadAhead& reads = *maker().read_ahead();
  auto gone = expected_;
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    const Lane& lane = lanes_[index];
    if (!ledger_.is_open(index) || lane.fenced) continue;
    const std::uint32_t owner = setup_.ledger.broadcast ? publish::BatchKey::kEveryone : index;
    Cursor cursor = ledger_.next(index);
    // As far as its ring and what is read ahead can reach; the last of it lies behind an opened batch.
    std::uint64_t room = reads.ahead() + std::uint64_t{2} * setup_.info.batch_size;
    for (std::uint32_t i = 0; i < ledger_.quota() || room > 0; ++i) {
      gone.erase({owner, cursor});
      if (i >= ledger_.quota()) {
        const auto rows = lane.group->plan->rows(cursor.origin, cursor.batch, lane.rank).rows;
        room -= std::min<std::uint64_t>(room, rows);
      }
      cursor = publish::advance(*lane.group->plan, cursor);
    }
  }
  for (const auto& [key, rows] : gone) {
    reads.forget(samples_of(key.second.epoch, rows));
    unexpect(key);
  }
}

}  // namespace headrace::server::exec
