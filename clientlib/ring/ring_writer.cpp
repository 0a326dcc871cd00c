#include "clientlib/ring/ring_writer.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cstring>
#include <new>
#include <utility>

#include "clientlib/base/contract.h"
#include "clientlib/ring/checksum.h"
#include "clientlib/ring/futex.h"

namespace headrace::ring {
namespace {

struct ControlPlan {
  std::uint64_t fields_offset, slots_offset, lanes_offset, bytes;
};

ControlPlan plan_control(std::size_t fields, std::uint32_t slots, std::uint32_t lanes) {
  static_assert(sizeof(FieldDesc) % kCacheLine == 0);
  ControlPlan plan{};
  plan.fields_offset = sizeof(ControlHeader);
  plan.slots_offset = plan.fields_offset + fields * sizeof(FieldDesc);
  plan.lanes_offset = plan.slots_offset + std::uint64_t{slots} * sizeof(SlotDesc);
  plan.bytes = plan.lanes_offset + std::uint64_t{lanes} * sizeof(LaneBlock);
  return plan;
}

struct RingPlan {
  SlotLayout slot;
  ControlPlan control;
  std::uint64_t data_bytes;
};

Result<RingPlan> plan_ring(const RingWriter::Options& options) {
  if (options.slots == 0 || options.lanes == 0)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("ring '{}': slots and lanes must be at least 1", options.name));
  auto slot = SlotLayout::plan(options.fields, options.rows);
  if (!slot) return fail(slot.error());
  RingPlan plan{.slot = std::move(*slot),
                .control = plan_control(options.fields.size(), options.slots, options.lanes),
                .data_bytes = 0};
  if (__builtin_mul_overflow(plan.slot.slot_stride, std::uint64_t{options.slots}, &plan.data_bytes) ||
      plan.data_bytes >> 62 != 0)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "ring '{}': {} slots of {} bytes exceed the address space; use fewer slots or smaller batches",
            options.name, options.slots, plan.slot.slot_stride));
  return plan;
}

std::string data_name(const std::string& stream) {
  return "headrace-data-" + stream;
}

std::uint64_t random_instance() {
  std::uint64_t value = 0;
  while (value == 0)
    if (::getrandom(&value, sizeof value, 0) != sizeof value) value = monotonic_ns();
  return value;
}

template <class T>
T untrusted(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);  // read once: the client may change it at any time
}

/// No honest client commits faster than this reads: after some tries its commits are ignored.
std::optional<Cursor> committed(const LeaseBlock& said) {
  constexpr int kTries = 64;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const std::uint64_t commits = said.commits.load(std::memory_order_acquire);  // SYNC commit
    if (commits == 0) return std::nullopt;
    const ConsumedCursor& entry = said.consumed[commits % 2];
    const Cursor cursor{entry.epoch.load(std::memory_order_acquire),
                        entry.origin.load(std::memory_order_acquire),
                        entry.batch.load(std::memory_order_acquire)};
    if (said.commits.load(std::memory_order_relaxed) == commits) return cursor;
  }
  return std::nullopt;
}

}  // namespace

struct RingWriter::Lane {
  Segment lease;
  std::uint32_t granted = 0;  // own copy of LaneBlock::granted
  std::uint32_t taken = 0;    // acks read
  bool attached = false;

  [[nodiscard]] LeaseBlock& block() const { return *reinterpret_cast<LeaseBlock*>(lease.data()); }
};

RingWriter::RingWriter() = default;
RingWriter::~RingWriter() = default;

ControlHeader& RingWriter::header() const {
  return *reinterpret_cast<ControlHeader*>(control_.data());
}

SlotDesc& RingWriter::slot(std::uint32_t index) const {
  require(index < slot_count(), "slot index out of range");
  return reinterpret_cast<SlotDesc*>(control_.data() + header().slots_offset)[index];
}

LaneBlock& RingWriter::block(std::uint32_t lane) const {
  require(lane < lane_count(), "lane index out of range");
  return reinterpret_cast<LaneBlock*>(control_.data() + header().lanes_offset)[lane];
}

RingWriter::Lane& RingWriter::attached_lane(std::uint32_t lane) const {
  require(attached(lane), "the lane must be attached");
  return lanes_[lane];
}

Result<std::uint64_t> RingWriter::bytes_needed(const Options& options) {
  return plan_ring(options).map([](const RingPlan& plan) { return plan.data_bytes + plan.control.bytes; });
}

Result<std::unique_ptr<RingWriter>> RingWriter::create(const Options& options, std::uint32_t allocated) {
  auto plan = plan_ring(options);
  if (!plan) return fail(plan.error());
  require(allocated > 0 && allocated <= options.slots, "the ring begins with between 1 and all slots");
  const std::uint64_t allocated_bytes = plan->slot.slot_stride * allocated;
  auto data =
      Segment::create(data_name(options.name), plan->data_bytes, options.data_access, allocated_bytes);
  if (!data) return fail(data.error());
  auto control =
      Segment::create("headrace-control-" + options.name, plan->control.bytes, ClientAccess::kReadOnly);
  if (!control) return fail(control.error());

  std::unique_ptr<RingWriter> ring(new RingWriter);
  ring->layout_ = std::move(plan->slot);
  ring->name_ = options.name;
  ring->checksums_ = options.checksums;
  ring->data_ = std::move(*data);
  ring->control_ = std::move(*control);
  ring->lanes_ = std::make_unique<Lane[]>(options.lanes);

  auto* header = new (ring->control_.data()) ControlHeader{};
  header->layout_version = kLayoutVersion;
  header->header_bytes = sizeof(ControlHeader);
  header->control_bytes = plan->control.bytes;
  header->data_bytes = plan->data_bytes;
  header->slot_stride = ring->layout_.slot_stride;
  header->rows_offset = ring->layout_.rows_offset;
  header->instance = random_instance();
  header->slot_count = options.slots;
  header->field_count = static_cast<std::uint32_t>(options.fields.size());
  header->row_capacity = options.rows;
  header->lane_count = options.lanes;
  header->fields_offset = plan->control.fields_offset;
  header->slots_offset = plan->control.slots_offset;
  header->lanes_offset = plan->control.lanes_offset;
  std::memcpy(ring->control_.data() + header->fields_offset, ring->layout_.fields.data(),
              ring->layout_.fields.size() * sizeof(FieldDesc));
  header->allocated_bytes.store(allocated_bytes, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < options.slots; ++i) new (&ring->slot(i)) SlotDesc{};
  for (std::uint32_t i = 0; i < options.lanes; ++i) new (&ring->block(i)) LaneBlock{};
  ring->beat();
  header->magic = kControlMagic;
  return ring;
}

Result<void> RingWriter::allocate(std::uint32_t slots) {
  require(slots <= slot_count(), "slot index out of range");
  if (slots <= allocated()) return {};
  const std::uint64_t bytes = layout_.slot_stride * slots;
  if (auto done = data_.allocate(data_name(name_), layout_.slot_stride * allocated(), bytes); !done)
    return done;
  header().allocated_bytes.store(bytes, std::memory_order_relaxed);  // clients read it after SYNC grant
  return {};
}

void RingWriter::step(std::uint32_t index, SlotState from, std::uint64_t to_word) {
  std::atomic<std::uint64_t>& word = slot(index).word;
  require(slot_state(word.load(std::memory_order_relaxed)) == from,
          "a slot was not in the state this step begins with");
  word.store(to_word, std::memory_order_release);  // SYNC publish-slot
}

LoanedSlot RingWriter::loan(std::uint32_t index) {
  require(index < allocated(), "the slot has no memory yet");
  LoanedSlot loaned;
  loaned.generation_ = ++last_generation_;
  loaned.index_ = index;
  step(index, SlotState::kFree, slot_word(loaned.generation_, SlotState::kFilling));
  loaned.ring_ = this;
  return loaned;
}

void RingWriter::publish(LoanedSlot loaned, const BatchInfo& info) {
  require(loaned.ring_ == this, "publish: the slot was loaned by another ring, or is published already");
  require(info.rows <= layout_.row_capacity && info.valid_rows <= info.rows,
          "publish: more rows than the slot holds");
  std::uint64_t payload = 0;
  for (std::size_t f = 0; f < layout_.fields.size(); ++f) {
    const FieldDesc& field = layout_.fields[f];
    if (field.offsets_offset == 0) {
      payload += field.values_bytes / layout_.row_capacity * info.rows;
      continue;
    }
    std::uint64_t value_bytes = size_of(static_cast<DType>(field.dtype));
    for (std::size_t d = 0; d < field.rank; ++d) value_bytes *= static_cast<std::uint64_t>(field.shape[d]);
    const std::int64_t values = loaned.offsets(f)[info.rows];
    require(values >= 0 && static_cast<std::uint64_t>(values) <= field.values_bytes / value_bytes,
            "publish: a ragged field's offsets exceed its capacity");
    payload += static_cast<std::uint64_t>(values) * value_bytes;
  }
  SlotDesc& desc = slot(loaned.index_);
  desc.epoch = info.epoch;
  desc.batch = info.batch;
  desc.position = info.position;
  desc.publish_ns = monotonic_ns();
  desc.payload_bytes = payload;
  desc.rows = info.rows;
  desc.valid_rows = info.valid_rows;
  desc.checksum = info.checksum;
  step(loaned.index_, SlotState::kFilling, slot_word(loaned.generation_, SlotState::kReady));
  loaned.ring_ = nullptr;
}

std::uint64_t RingWriter::checksum(std::uint32_t index, std::uint32_t rows) const {
  return checksum_of(
      {data_.data() + index * layout_.slot_stride, layout_.fields, layout_.rows_offset, layout_.row_capacity},
      rows);
}

bool RingWriter::intact(std::uint32_t index) const {
  const SlotDesc& desc = slot(index);
  return desc.checksum == 0 || desc.checksum == checksum(index, desc.rows);
}

std::uint64_t LoanedSlot::checksum(std::uint32_t rows) const {
  return ring_->checksums_ ? ring_->checksum(index_, rows) : 0;
}

void RingWriter::abandon(LoanedSlot loaned) {
  require(loaned.ring_ == this, "abandon: the slot was loaned by another ring, or is published already");
  step(loaned.index_, SlotState::kFilling, slot_word(loaned.generation_, SlotState::kFree));
  loaned.ring_ = nullptr;
}

void RingWriter::release(std::uint32_t index) {
  step(index, SlotState::kReady, slot_word(generation(index), SlotState::kFree));
}

SlotState RingWriter::state(std::uint32_t index) const {
  return slot_state(slot(index).word.load(std::memory_order_relaxed));
}

std::uint64_t RingWriter::generation(std::uint32_t index) const {
  return slot_generation(slot(index).word.load(std::memory_order_relaxed));
}

Result<Segment> RingWriter::make_lease() const {
  auto lease = Segment::create("headrace-lease-" + name_, sizeof(LeaseBlock), ClientAccess::kReadWrite);
  if (!lease) return fail(lease.error());
  auto* statements = new (lease->data()) LeaseBlock{};
  statements->magic = kLeaseMagic;
  statements->layout_version = kLayoutVersion;
  statements->heartbeat_ns.store(monotonic_ns(), std::memory_order_relaxed);
  return lease;
}

RingWriter::Attachment RingWriter::attach(std::uint32_t index, Segment lease) {
  LaneBlock& lane_block = block(index);
  require(!attached(index), "attach: the lane is attached already");
  lane_block.granted.store(0, std::memory_order_relaxed);
  lane_block.state.store(kLaneOpen, std::memory_order_relaxed);
  lane_block.attachment.store(++last_attachment_, std::memory_order_release);
  Lane& lane = lanes_[index];
  UniqueFd fd = lease.take_fd();
  lane = Lane{.lease = std::move(lease), .attached = true};
  return Attachment{.data_fd = data_.fd(), .control_fd = control_.fd(), .lease_fd = std::move(fd)};
}

void RingWriter::detach(std::uint32_t index) {
  attached_lane(index) = Lane{};
  LaneBlock& lane_block = block(index);
  lane_block.attachment.store(0, std::memory_order_release);
  futex_wake_all(lane_block.granted);
}

bool RingWriter::attached(std::uint32_t lane) const {
  require(lane < lane_count(), "lane index out of range");
  return lanes_[lane].attached;
}

bool RingWriter::write_grant(std::uint32_t index, std::uint32_t slot_index, std::uint32_t seek) {
  Lane& lane = attached_lane(index);
  const SlotDesc& desc = slot(slot_index);
  require(state(slot_index) == SlotState::kReady, "grant: the slot must be READY");
  LaneBlock& lane_block = block(index);
  lane_block.grants[lane.granted % kGrantRing] = Grant{.generation = generation(slot_index),
                                                       .epoch = desc.epoch,
                                                       .batch = desc.batch,
                                                       .slot = slot_index,
                                                       .seek = seek};
  lane_block.granted.store(++lane.granted, std::memory_order_seq_cst);  // SYNC grant, SYNC client-sleeps
  return lane.block().waiting.load(std::memory_order_seq_cst) != 0;     // SYNC client-sleeps
}

void RingWriter::wake(std::uint32_t lane) const {
  futex_wake_all(block(lane).granted);
}

void RingWriter::set_lane_state(std::uint32_t index, std::uint32_t bits) {
  LaneBlock& lane_block = block(index);
  lane_block.state.fetch_or(bits, std::memory_order_release);
  futex_wake_all(lane_block.granted);
}

bool RingWriter::has_acks(std::uint32_t index) const {
  if (!attached(index)) return false;
  const Lane& lane = lanes_[index];
  return lane.block().acked.load(std::memory_order_seq_cst) != lane.taken;  // SYNC server-sleeps
}

Result<void> RingWriter::take_acks(std::uint32_t index, std::vector<TakenAck>& out) {
  Lane& lane = attached_lane(index);
  const LeaseBlock& statements = lane.block();
  const std::uint32_t acked = statements.acked.load(std::memory_order_acquire);  // SYNC ack
  if (acked - lane.taken > kGrantRing)
    return fail(ErrorCode::kBadMessage,
                fmt::format("lane {}: the count of acks jumped from {} to {}", index, lane.taken, acked));
  for (; lane.taken != acked; ++lane.taken) {
    const Ack& ack = statements.acks[lane.taken % kGrantRing];
    const TakenAck copy{.slot = untrusted(ack.slot), .generation = untrusted(ack.generation)};
    if (copy.slot >= slot_count())
      return fail(ErrorCode::kBadMessage,
                  fmt::format("lane {}: an ack names slot {} of {}", index, copy.slot, slot_count()));
    out.push_back(copy);
  }
  return {};
}

std::optional<RingWriter::ClientReport> RingWriter::client_report(std::uint32_t index) const {
  if (!attached(index)) return std::nullopt;
  const LeaseBlock& said = lanes_[index].block();
  constexpr auto kRelaxed = std::memory_order_relaxed;
  return ClientReport{.heartbeat_ns = said.heartbeat_ns.load(kRelaxed),
                      .wait_ns = said.wait_ns.load(kRelaxed),
                      .private_copies = said.private_copies.load(kRelaxed),
                      .staged_copies = said.staged_copies.load(kRelaxed),
                      .waiting = said.waiting.load(kRelaxed) != 0,
                      .consumed = committed(said)};
}

bool RingWriter::client_waits(std::uint32_t index) const {
  return attached(index) && lanes_[index].block().waiting.load(std::memory_order_relaxed) != 0;
}

void RingWriter::beat() {
  header().heartbeat_ns.store(monotonic_ns(), std::memory_order_relaxed);
}

void RingWriter::set_idle(ServerIdle idle) {
  header().server_idle.store(idle, std::memory_order_seq_cst);  // SYNC server-sleeps
}

std::uint32_t RingWriter::slot_count() const {
  return header().slot_count;
}
std::uint32_t RingWriter::allocated() const {
  return static_cast<std::uint32_t>(header().allocated_bytes.load(std::memory_order_relaxed) /
                                    layout_.slot_stride);
}
std::uint32_t RingWriter::lane_count() const {
  return header().lane_count;
}
std::uint64_t RingWriter::instance() const {
  return header().instance;
}
std::uint64_t RingWriter::bytes() const {
  return header().control_bytes + layout_.slot_stride * allocated();
}

}  // namespace headrace::ring
