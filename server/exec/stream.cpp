#include "server/exec/stream.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "clientlib/base/thrown.h"
#include "clientlib/ring/futex.h"

namespace headrace::server::exec {
namespace {

constexpr std::size_t kSliceBytes = 256 * 1024;
/// Of a ring, more than what a socket's last cache keeps of it while others use that, too.
constexpr std::size_t kBeyondCaches = 16 << 20;

bool listened_to(const Lane& lane) {
  return lane.attached && !lane.sink && lane.offence.empty();
}

std::size_t bytes_per_row(const std::vector<FieldSpec>& fields) {
  return std::accumulate(fields.begin(), fields.end(), std::size_t{0},
                         [](std::size_t sum, const FieldSpec& field) { return sum + row_bytes(field); });
}

}  // namespace

Stream::Stream(StreamSetup setup)
    : setup_(std::move(setup)),
      slice_(static_cast<std::uint32_t>(std::clamp<std::size_t>(
          kSliceBytes / bytes_per_row(setup_.info.fields), 1, setup_.info.batch_size))),
      // Rows that are mixed are read again at once.
      streamed_(!setup_.maker->mixes() && bytes_per_row(setup_.info.fields) * setup_.info.batch_size >
                                              kBeyondCaches / publish::Ledger::slots_needed(setup_.ledger)),
      ledger_(setup_.ledger),
      groups_(setup_.info.delivery, setup_.info.samples, setup_.info.batch_size, setup_.info.last),
      lanes_(setup_.ledger.lanes) {
  // Reserved here: pushes under the lock cannot throw.
  const std::size_t slots = publish::Ledger::slots_needed(setup_.ledger);
  orders_.reserve(slots);
  freed_.reserve(slots);
  acks_.reserve(ring::kGrantRing);
  if (live()) ledger_.set_end({});
  if (maker().mixes()) slice_ += slice_ % 2;  // partners are neighbours
}

Result<std::unique_ptr<Stream>> Stream::create(StreamSetup setup) {
  auto stream = std::unique_ptr<Stream>(new Stream(std::move(setup)));
  const StreamSetup& made = stream->setup_;
  auto ring = ring::RingWriter::create({.name = made.info.name,
                                        .fields = ring_fields(made.info),
                                        .rows = made.info.batch_size,
                                        .slots = publish::Ledger::slots_needed(made.ledger),
                                        .lanes = made.ledger.lanes,
                                        .data_access = made.data_access});
  if (!ring) {
    Error error = ring.error();
    error.message = fmt::format(
        "stream `{}`: {}{}", made.info.name, error.message,
        error.code == ErrorCode::kNotEnoughMemory
            ? ": lower batch_size, ring.prefetch, ring.max_clients or ring.max_leases of the stream"
            : "");
    return fail(std::move(error));
  }
  stream->ring_ = std::move(*ring);
  return stream;
}

Stream::~Stream() = default;

void Stream::stop(const Error& reason) {
  const std::scoped_lock lock(failure_mutex_);
  if (failed_.load(std::memory_order_relaxed)) return;
  failure_ = reason;
  failed_.store(true, std::memory_order_release);
  if (auto* const reads = maker().read_ahead()) reads->clear();
  spdlog::error("stream `{}` stopped, until the server is restarted: {}", setup_.info.name,
                reason.to_string());
}

void Stream::stop_after(const char* doing, const char* error) noexcept try {
  stop({ErrorCode::kInternal, fmt::format("{}: {}", doing, error)});
} catch (const std::exception&) {
  // No memory for a message: stop without one.
  failed_.store(true, std::memory_order_release);
}

Error Stream::failure() const {
  const std::scoped_lock lock(failure_mutex_);
  return Error{ErrorCode::kStreamFailed, fmt::format("stream `{}` stopped, until the server is restarted: {}",
                                                     setup_.info.name, failure_.to_string())};
}

double Stream::fullness() const {
  double least = 2;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (ledger_.is_open(lane) && !lanes_[lane].fenced)
      least = std::min(least, static_cast<double>(ledger_.ahead(lane)) / ledger_.quota());
  return least;
}

std::shared_ptr<FillJob> Stream::next_job(std::uint64_t now_ns) {
  if (failed() || draining_) return nullptr;
  for (const auto& job : jobs_)
    if (job->unclaimed() && job->ready()) return job;
  for (;;) {
    bool freed = false;
    if (const auto fill = take_fill(freed)) {
      if (blocked_since_ns_) blocked_total_ns_ += now_ns - blocked_since_ns_;
      blocked_since_ns_ = 0;
      // While samples are on their way, those of the next batch may be there.
      auto job = start_job(*fill);
      if (!job || job->ready()) return job;
      continue;
    }
    give_grants(now_ns);  // a lane may have joined batches that were ready
    // Whoever finds nothing goes to sleep: so what moved in this look calls for another one.
    if (!freed && orders_.empty()) break;
  }
  const bool anyone = foremost_lane().has_value();
  if (anyone && jobs_.empty() && !blocked_since_ns_) blocked_since_ns_ = now_ns;
  if (!anyone) blocked_since_ns_ = 0;
  return nullptr;
}

std::optional<publish::Ledger::Fill> Stream::take_fill(bool& freed) {
  // Emptiest lane first. Lanes are few; sorting indices would cost more than two passes.
  std::uint64_t tried = 0;
  for (std::size_t pass = 0; pass < lanes_.size(); ++pass) {
    std::optional<std::uint32_t> emptiest;
    for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      if (tried >> lane & 1 || !ledger_.is_open(lane)) continue;
      if (!emptiest || ledger_.ahead(lane) < ledger_.ahead(*emptiest)) emptiest = lane;
    }
    if (!emptiest) break;
    tried |= std::uint64_t{1} << *emptiest;
    auto fill = ledger_.take_fill(*emptiest);
    freed |= free_slots();  // what was given up for this lane, for example others' look-ahead
    if (fill) return fill;
  }
  return std::nullopt;
}

std::shared_ptr<FillJob> Stream::start_job(const publish::Ledger::Fill& fill) try {
  const Lane& lane = lanes_[fill.lane];
  const Cursor& cursor = fill.key.cursor;
  const sampler::BatchRows rows = lane.group->plan->rows(cursor.origin, cursor.batch, lane.rank);
  if (built_by_rank_.size() <= lane.rank) built_by_rank_.resize(lane.rank + 1);
  auto job =
      std::make_shared<FillJob>(*this, ring_->loan(fill.slot), fill.key, rows,
                                setup_.maker->order(cursor.epoch), slice_, maker(), expect_reads(fill, rows));
  jobs_.push_back(job);  // the last step that may throw: before it, ~FillJob abandons the slot
  if (live()) built_ = std::max(built_, number(cursor) + 1);
  ++built_by_rank_[lane.rank];
  return job;
} catch (...) {
  ledger_.discard(fill.slot);
  stop_after("could not start a batch", thrown());
  return nullptr;
}

void Stream::complete(FillJob& job, metrics::StreamCounters& counters) {
  ring::LoanedSlot slot = std::move(*job.slot);
  job.slot.reset();
  const std::uint32_t index = slot.index();
  const Cursor& cursor = job.key.cursor;
  if (failed()) {
    ledger_.discard(index);
    ring_->abandon(std::move(slot));
  } else if (!ledger_.filled(index)) {
    ring_->abandon(std::move(slot));
  } else {
    ring_->publish(std::move(slot), {.epoch = cursor.epoch,
                                     .batch = cursor.batch,
                                     .position = job.rows.first,
                                     .rows = job.rows.rows,
                                     .valid_rows = job.rows.valid});
    last_batch_ns_ = ring::monotonic_ns();
    counters.batches.add(1);
    counters.published_bytes.add(job.bytes());
  }
  if (live()) setup_.feed->release(number(cursor));
  std::erase_if(jobs_, [&](const auto& other) { return other.get() == &job; });
}

bool Stream::has_acks() const {
  for (std::uint32_t index = 0; index < lanes_.size(); ++index)
    if (listened_to(lanes_[index]) && ring_->has_acks(index)) return true;
  return false;
}

bool Stream::pump(std::uint64_t now_ns) {
  bool changed = false;
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (!listened_to(lane) || !ring_->has_acks(index)) continue;
    acks_.clear();
    const auto taken = ring_->take_acks(index, acks_);
    if (!taken) lane.offence = taken.error().message;
    for (const ring::TakenAck& ack : acks_) {
      if (ack.slot < ring_->slot_count() && ring_->generation(ack.slot) == ack.generation &&
          ledger_.ack(index, ack.slot))
        continue;
      lane.offence =
          fmt::format("ack of slot {} generation {}, which it does not lease", ack.slot, ack.generation);
    }
    changed = true;
  }
  free_slots();
  if (failed()) {
    tell_failure();
    return changed;
  }
  give_grants(now_ns);
  if (end_) tell_end();
  return changed || !orders_.empty();
}

/// Once: it takes a system call for each, and clients may stay for as long as they like.
void Stream::tell_failure() {
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (!lane.attached || lane.sink || lane.told_failure) continue;
    lane.told_failure = true;
    ring_->set_lane_state(index, ring::kLaneFailed);
  }
}

void Stream::give_grants(std::uint64_t now_ns) {
  orders_.clear();
  if (draining_ || (live() && expects_client()) || !gate_open(now_ns)) return;
  ledger_.take_grants(orders_);
  if (ledger_.detachments() > 0 && !std::exchange(told_of_detachment_, true))
    spdlog::info(
        "stream `{}`: a client fell more than {} batches (max_lag) behind another and goes on with batches "
        "of its own, which are built anew; from here on headrace_detachments_total counts them",
        setup_.info.name, setup_.ledger.max_lag);
  for (const auto& order : orders_) {
    if (lanes_[order.lane].sink) {
      ledger_.ack(order.lane, order.slot);
    } else if (ring_->write_grant(order.lane, order.slot, order.seek)) {
      to_wake_ |= std::uint64_t{1} << order.lane;
    }
  }
  free_slots();
}

bool Stream::free_slots() {
  freed_.clear();
  ledger_.take_freed(freed_);
  for (const std::uint32_t slot : freed_) ring_->release(slot);
  return !freed_.empty();
}

bool Stream::gate_open(std::uint64_t now_ns) {
  if (gate_passed_) return true;
  const std::uint32_t attached = attached_lanes();
  const auto waited = std::chrono::nanoseconds(now_ns - first_attach_ns_);
  // Who waits for others hears at once of a feeder that broke off. One that has given all may well be waited
  // for: the batches are there for everybody who is to come.
  const bool complete = attached >= setup_.wait_for || (end_ && !end_->done);
  gate_passed_ = complete || (attached > 0 && waited > setup_.wait_timeout);
  if (gate_passed_ && !complete)
    spdlog::warn("stream `{}` begins with {} of {} clients, after {} s (wait_timeout)", setup_.info.name,
                 attached, setup_.wait_for,
                 std::chrono::duration_cast<std::chrono::seconds>(setup_.wait_timeout).count());
  return gate_passed_;
}

std::uint32_t Stream::attached_lanes() const {
  return static_cast<std::uint32_t>(
      std::count_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.attached; }));
}

std::uint32_t Stream::awaited_clients() const {
  return gate_passed_ ? 0 : setup_.wait_for - std::min(setup_.wait_for, attached_lanes());
}

std::uint64_t Stream::blocked_ns(std::uint64_t now_ns) const {
  return blocked_total_ns_ + (blocked_since_ns_ ? now_ns - std::min(now_ns, blocked_since_ns_) : 0);
}

std::uint64_t Stream::built_by_rank(std::uint32_t rank) const {
  return rank < built_by_rank_.size() ? built_by_rank_[rank] : 0;
}

}  // namespace headrace::server::exec
