#include "clientlib/ring/ring_reader.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "clientlib/base/contract.h"
#include "clientlib/ring/checksum.h"
#include "clientlib/ring/futex.h"

namespace headrace::ring {
namespace {

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool is_set(const std::atomic<bool>* flag) {
  return flag != nullptr && flag->load(std::memory_order_acquire);
}

std::uint64_t after(std::uint64_t now, std::chrono::nanoseconds span) {
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(span.count(), 0));
  return now + std::min(ns, ~now);
}

}  // namespace

bool RingReader::fenced() const {
  return (lane_state() & kLaneFenced) != 0;
}

std::optional<Grant> RingReader::next(std::uint32_t seek, std::chrono::nanoseconds timeout,
                                      std::chrono::nanoseconds spin, const std::atomic<bool>* interrupt) {
  const std::uint64_t start = monotonic_ns();
  const std::uint64_t deadline = after(start, timeout);
  const std::chrono::nanoseconds lately(spin_.ns());
  const std::uint64_t spin_until = std::min(deadline, after(start, std::max(spin, lately)));
  for (bool waited = false;; waited = true) {
    if (is_set(interrupt) || fenced()) return std::nullopt;
    if (lane_->granted.load(std::memory_order_acquire) != seen_) {  // SYNC grant
      if (waited) spin_.waited(monotonic_ns() - start);
      if (auto grant = take(seek)) return grant;
      continue;
    }
    if (lane_state() != kLaneOpen || !wait_for_grant(deadline, spin_until, interrupt)) return std::nullopt;
  }
}

std::optional<Grant> RingReader::take(std::uint32_t seek) {
  const Grant grant = lane_->grants[seen_ % kGrantRing];
  const bool ours = lane_->attachment.load(std::memory_order_acquire) == attachment_;
  if (!ours || grant.slot >= slot_count_ ||
      slot_desc(grant.slot).word.load(std::memory_order_acquire) !=  // SYNC publish-slot
          slot_word(grant.generation, SlotState::kReady)) {
    mismatch_.store(true, std::memory_order_relaxed);
    return std::nullopt;
  }
  ++seen_;
  if (grant.seek == seek) return grant;
  ack(grant);
  return std::nullopt;
}

std::uint32_t RingReader::ready(std::uint32_t seek) const {
  const std::uint32_t granted = lane_->granted.load(std::memory_order_acquire);  // SYNC grant
  if (fenced() || granted - seen_ > kGrantRing)
    return 0;  // the lane belongs to another client: not our count
  std::uint32_t count = 0;
  for (std::uint32_t i = seen_; i != granted; ++i)
    count += lane_->grants[i % kGrantRing].seek == seek ? 1 : 0;
  return count;
}

// False at the deadline; true if the caller should check for grants again.
bool RingReader::wait_for_grant(std::uint64_t deadline_ns, std::uint64_t spin_until_ns,
                                const std::atomic<bool>* interrupt) {
  std::uint64_t now = monotonic_ns();
  for (; now < spin_until_ns; now = monotonic_ns())
    for (int i = 0; i < 32; ++i) {
      if (lane_->granted.load(std::memory_order_acquire) != seen_ || is_set(interrupt)) return true;
      pause_cpu();
    }
  if (now >= deadline_ns) return false;
  if (header().server_idle.load(std::memory_order_relaxed) == kServerHalfAwake) ring_doorbell();
  lease().waiting.store(1, std::memory_order_seq_cst);  // SYNC client-sleeps
  if (!std::exchange(asked_, true)) ring_doorbell();    // `sharing.wait_for` counts clients that wait
  if (lane_->granted.load(std::memory_order_seq_cst) == seen_ &&  // SYNC client-sleeps
      lane_state() == kLaneOpen && !is_set(interrupt))
    futex_wait(lane_->granted, seen_,
               std::chrono::nanoseconds(std::min(deadline_ns - now, std::uint64_t{1} << 62)));
  lease().waiting.store(0, std::memory_order_relaxed);
  return true;
}

void RingReader::ack(const Grant& grant) {
  const std::lock_guard lock(ack_mutex_);
  lease().acks[acked_ % kGrantRing] = Ack{.generation = grant.generation, .slot = grant.slot, .reserved = 0};
  lease().acked.store(++acked_, std::memory_order_seq_cst);  // SYNC ack, SYNC server-sleeps
  if (header().server_idle.load(std::memory_order_seq_cst) == kServerRests)
    ring_doorbell();  // SYNC server-sleeps
}

void RingReader::ring_doorbell() const {
  const std::uint64_t one = 1;
  // Fails only if the counter is full: then the doorbell has rung already.
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.get(), &one, sizeof one);
}

void RingReader::commit(const Cursor& consumed) const {
  LeaseBlock& mine = lease();
  const std::uint64_t commits = mine.commits.load(std::memory_order_relaxed) + 1;
  ConsumedCursor& entry = mine.consumed[commits % 2];
  // Release: a reader that sees part of this commit also sees the previous count, and so knows that it must
  // retry.
  entry.epoch.store(consumed.epoch, std::memory_order_release);
  entry.origin.store(consumed.origin, std::memory_order_release);
  entry.batch.store(consumed.batch, std::memory_order_release);
  mine.commits.store(commits, std::memory_order_release);  // SYNC commit
}

void RingReader::wake() const {
  futex_wake_all(lane_->granted);
}

std::uint32_t RingReader::lane_state() const {
  const std::uint32_t state = lane_->state.load(std::memory_order_acquire);
  const bool ours = lane_->attachment.load(std::memory_order_acquire) == attachment_;
  return ours && !mismatch_.load(std::memory_order_relaxed) ? state : state | kLaneFenced;
}

const std::vector<FieldSpec>& RingReader::fields() const {
  return specs_;
}

const ControlHeader& RingReader::header() const {
  return *reinterpret_cast<const ControlHeader*>(control_.data());
}

const SlotDesc& RingReader::slot_desc(std::uint32_t slot) const {
  return reinterpret_cast<const SlotDesc*>(control_.data() + slots_offset_)[slot];
}

const SlotDesc& RingReader::slot(std::uint32_t slot) const {
  require(slot < slot_count_, "slot index out of range");
  return slot_desc(slot);
}

const std::byte* RingReader::values(std::uint32_t slot, std::size_t field) const {
  require(slot < slot_count_ && field < descs_.size(), "slot or field index out of range");
  return data_.data() + slot * slot_stride_ + descs_[field].values_offset;
}

const std::int64_t* RingReader::offsets(std::uint32_t slot, std::size_t field) const {
  require(slot < slot_count_ && field < descs_.size(), "slot or field index out of range");
  require(descs_[field].offsets_offset != 0, "a dense field has no offsets");
  return reinterpret_cast<const std::int64_t*>(data_.data() + slot * slot_stride_ +
                                               descs_[field].offsets_offset);
}

const RowDesc* RingReader::rows(std::uint32_t slot) const {
  require(slot < slot_count_, "slot index out of range");
  return reinterpret_cast<const RowDesc*>(data_.data() + slot * slot_stride_ + rows_offset_);
}

bool RingReader::intact(std::uint32_t index) {
  const SlotDesc& desc = slot(index);
  if (desc.checksum == 0) return true;
  freshen(index);  // this process's own writes are no damage
  return desc.checksum == checksum_of({memory(index).data(), descs_, rows_offset_, row_capacity_},
                                      std::min(desc.rows, row_capacity_));
}

std::uint32_t RingReader::row_capacity() const {
  return row_capacity_;
}
std::uint64_t RingReader::server_heartbeat_ns() const {
  return header().heartbeat_ns.load(std::memory_order_relaxed);
}
std::uint64_t RingReader::instance() const {
  return header().instance;
}
std::span<std::byte> RingReader::memory(std::uint32_t slot) const {
  require(slot < slot_count_, "slot index out of range");
  return {data_.data() + slot * slot_stride_, slot_stride_};
}
std::size_t RingReader::drop_private_pages(std::uint32_t slot) const {
  const std::scoped_lock lock(mapping_mutex_);
  if (holds_only_copies_) return 0;
  return pages_->drop(memory(slot), data_.fd(), slot * slot_stride_);
}
std::optional<std::uint64_t> RingReader::freshen(std::uint32_t slot) {
  if (!pages_) return std::nullopt;
  const auto now = PrivatePages::faults();
  if (now && checked_at_[slot] == now) return now;
  checked_at_[slot] = now;
  const auto all = memory(slot);
  if (pages_->count(all.first(page_size())) + pages_->count(all.last(page_size())) > 0)
    drop_private_pages(slot);
  return now;
}
void RingReader::keep_viewed_only() {
  const std::scoped_lock lock(mapping_mutex_);
  if (exposed_.load() || std::exchange(holds_only_copies_, true)) return;
  constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  const auto forget = [](std::byte* at, std::size_t bytes) {
    (void)::mmap(at, bytes, PROT_NONE, kAnonymous | MAP_NORESERVE | MAP_FIXED, -1, 0);
  };
  for (std::uint32_t slot = 0; slot < slot_count_; ++slot) {
    const std::span<std::byte> pages = memory(slot);
    if (views_[slot].load(std::memory_order_relaxed) == 0) {
      forget(pages.data(), pages.size());
      continue;
    }
    void* const copy = ::mmap(nullptr, pages.size(), PROT_READ | PROT_WRITE, kAnonymous, -1, 0);
    if (copy == MAP_FAILED) continue;  // no memory: the slot stays mapped, and so the whole ring exists
    std::memcpy(copy, pages.data(), pages.size());
    if (!pages_) (void)::mprotect(copy, pages.size(), PROT_READ);
    // In one step, so that readers notice nothing.
    if (::mremap(copy, pages.size(), pages.size(), MREMAP_MAYMOVE | MREMAP_FIXED, pages.data()) == MAP_FAILED)
      (void)::munmap(copy, pages.size());
  }
  const std::size_t slots = slot_count_ * slot_stride_;
  if (slots < data_.size()) forget(data_.data() + slots, data_.size() - slots);
  data_.take_fd().reset();
}
std::span<std::byte> RingReader::data() const {
  exposed_.store(true);
  // The server writes this number, but no client trusts it with more than its mapping.
  const std::uint64_t allocated = header().allocated_bytes.load(std::memory_order_relaxed);
  return {data_.data(), std::min<std::uint64_t>(allocated, data_.size())};
}
LeaseBlock& RingReader::lease() const {
  return *reinterpret_cast<LeaseBlock*>(lease_.data());
}

}  // namespace headrace::ring
