#include "server/exec/look_ahead.h"

#include <algorithm>

namespace headrace::server::exec {

using Urgency = io::ReadAhead::Urgency;

std::vector<std::uint64_t> LookAhead::samples_of(std::uint64_t epoch, const sampler::BatchRows& rows) const {
  const sampler::EpochOrder order = maker_.order(epoch);
  const std::uint64_t size = maker_.size();
  std::vector<std::uint64_t> samples(rows.rows);
  for (std::uint32_t i = 0; i < rows.rows; ++i) samples[i] = order((rows.first + i) % size);
  return samples;
}

std::vector<std::uint64_t> LookAhead::to_read(std::vector<std::uint64_t> samples) const {
  std::erase_if(samples, [this](std::uint64_t sample) { return !maker_.reads(sample); });
  return samples;
}

std::vector<std::uint64_t> LookAhead::expect(const publish::Ledger::Fill& fill,
                                             const sampler::BatchRows& rows) {
  auto* const reads = maker_.read_ahead();
  if (reads == nullptr) return {};
  auto samples = samples_of(fill.key.cursor.epoch, rows);
  if (!unexpect({fill.key.owner, fill.key.cursor})) reads->expect(to_read(samples), Urgency::kNext);
  expect_next(fill);
  return samples;
}

std::vector<std::uint64_t> LookAhead::leave_out(const publish::Ledger::Fill& fill,
                                                const sampler::BatchRows& rows) {
  if (unexpect({fill.key.owner, fill.key.cursor}))
    maker_.read_ahead()->forget(samples_of(fill.key.cursor.epoch, rows));
  return {};
}

void LookAhead::expect_next(const publish::Ledger::Fill& fill) {
  const Lane& lane = lanes_.all()[fill.lane];
  const sampler::EpochPlan& plan = *lane.group->plan;
  io::ReadAhead& reads = *maker_.read_ahead();
  // Ranks share no samples: each gets its part of the room. Clients that share batches share their samples.
  std::uint64_t room = reads.ahead();
  if (fill.key.owner != publish::BatchKey::kEveryone) {
    room /= std::max<std::uint64_t>(lanes_.open_count(), 1);
  }
  // At least the next batch: reads go on while the last rows of this one are made.
  Cursor cursor = fill.key.cursor;
  for (bool next = true;; next = false) {
    cursor = publish::advance(plan, cursor);
    const sampler::BatchRows rows = plan.rows(cursor.origin, cursor.batch, lane.rank);
    if (!next && rows.rows > room) return;
    room -= std::min<std::uint64_t>(room, rows.rows);
    const std::pair batch(fill.key.owner, cursor);
    if (lanes_.ledger().holds({cursor, fill.key.owner}) || expected_.contains(batch)) continue;
    if (!next && expected_rows_ + rows.rows > reads.ahead()) return;  // lanes at different positions
    expected_.emplace(batch, rows);
    expected_rows_ += rows.rows;
    reads.expect(to_read(samples_of(cursor.epoch, rows)), Urgency::kLater);
  }
}

bool LookAhead::unexpect(const Batch& batch) {
  const auto found = expected_.find(batch);
  if (found == expected_.end()) return false;
  expected_rows_ -= found->second.rows;
  expected_.erase(found);
  return true;
}

void LookAhead::drop_unwanted() noexcept {
  if (expected_.empty()) return;
  try {
    drop_what_no_lane_reaches();
  } catch (...) {
    expected_.clear();
    expected_rows_ = 0;
    clear();
  }
}

void LookAhead::clear() {
  if (auto* const reads = maker_.read_ahead()) reads->clear();
}

void LookAhead::drop_what_no_lane_reaches() {
  io::ReadAhead& reads = *maker_.read_ahead();
  auto gone = expected_;
  const publish::Ledger& ledger = lanes_.ledger();
  for (std::uint32_t index = 0; index < lanes_.all().size(); ++index) {
    const Lane& lane = lanes_.all()[index];
    if (!ledger.is_open(index) || lane.fenced) continue;
    const std::uint64_t owner = ledger.owner(index);
    Cursor cursor = ledger.next(index);
    // As far as its ring and the prefetched samples can reach; the last of it follows an opened batch.
    std::uint64_t room = reads.ahead() + std::uint64_t{2} * lanes_.batch_size();
    for (std::uint32_t i = 0; i < ledger.quota() || room > 0; ++i) {
      gone.erase({owner, cursor});
      if (i >= ledger.quota()) {
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
