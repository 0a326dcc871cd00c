// RingReader::open: everything that a client checks before it uses a ring.
#include <fcntl.h>
#include <fmt/format.h>

#include "clientlib/ring/ring_reader.h"
#include "clientlib/ring/slot_layout.h"

namespace headrace::ring {
namespace {

bool lies_within(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

/// An array of `count` structs in the control segment.
template <class T>
bool holds(const ControlHeader& header, std::uint64_t offset, std::uint32_t count) {
  return offset % alignof(T) == 0 &&
         lies_within(offset, std::uint64_t{count} * sizeof(T), header.control_bytes);
}

tl::unexpected<Error> bad_ring(std::string_view what) {
  return fail(ErrorCode::kBadMessage, fmt::format("the ring that the server sent is malformed: {}", what));
}

Result<void> check_header(const ControlHeader& header, std::size_t control_size, std::size_t data_size) {
  if (header.magic != kControlMagic) return bad_ring("the control segment has the wrong magic number");
  if (header.layout_version != kLayoutVersion || header.header_bytes != sizeof(ControlHeader))
    return fail(
        ErrorCode::kVersionMismatch,
        fmt::format("the server's ring has layout version {} ({}-byte header), this client reads version {} "
                    "({}-byte header): install the same release on both sides",
                    header.layout_version, header.header_bytes, kLayoutVersion, sizeof(ControlHeader)));
  if (header.control_bytes > control_size || header.data_bytes > data_size)
    return bad_ring("a segment is shorter than the header says");
  if (header.slot_count == 0 || header.field_count == 0 || header.field_count > kMaxFields ||
      header.row_capacity == 0)
    return bad_ring("a count is out of range");
  if (!holds<FieldDesc>(header, header.fields_offset, header.field_count) ||
      !holds<SlotDesc>(header, header.slots_offset, header.slot_count) ||
      !holds<LaneBlock>(header, header.lanes_offset, header.lane_count))
    return bad_ring("a table exceeds the control segment");
  std::uint64_t slots_bytes = 0;
  if (__builtin_mul_overflow(header.slot_stride, std::uint64_t{header.slot_count}, &slots_bytes) ||
      slots_bytes > header.data_bytes)
    return bad_ring("the slots exceed the data segment");
  if (header.slot_stride % page_size() != 0) return bad_ring("the slots are not aligned to pages");
  if (header.rows_offset % alignof(RowDesc) != 0 ||
      !lies_within(header.rows_offset, std::uint64_t{header.row_capacity} * sizeof(RowDesc),
                   header.slot_stride))
    return bad_ring("the row descriptors exceed a slot");
  return {};
}

}  // namespace

Result<std::shared_ptr<RingReader>> RingReader::open(Descriptors fds, std::uint32_t lane, Slots slots) {
  auto control = Segment::map(std::move(fds.control), Access::kReadOnly, sizeof(ControlHeader));
  if (!control) return fail(control.error());
  auto lease = Segment::map(std::move(fds.lease), Access::kReadWrite, sizeof(LeaseBlock));
  if (!lease) return fail(lease.error());
  std::shared_ptr<RingReader> reader(new RingReader);
  reader->control_ = std::move(*control);
  reader->lease_ = std::move(*lease);
  reader->doorbell_ = std::move(fds.doorbell);
  if (auto mapped = reader->map_data(std::move(fds.data), slots); !mapped) return fail(mapped.error());
  if (auto good = reader->check(lane); !good) return fail(good.error());
  return reader;
}

Result<void> RingReader::map_data(UniqueFd fd, Slots slots) {
  if (slots == Slots::kPrivate) {
    auto pages = PrivatePages::open();
    UniqueFd copy(pages ? ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0) : -1);
    auto data = copy ? Segment::map(std::move(copy), Access::kCopyOnWrite, 1)
                     : fail(ErrorCode::kEnvironment, "no copy-on-write");
    if (data) {
      data_ = std::move(*data);
      pages_ = std::move(pages);
      return {};
    }  // else: strict overcommit accounting refuses the mapping
  }
  data_writable_ = slots == Slots::kShared && clients_may_write(fd.get());
  auto data = Segment::map(std::move(fd), Access::kReadOnly, 1);
  if (!data) return fail(data.error());
  data_ = std::move(*data);
  return {};
}

Result<void> RingReader::check(std::uint32_t lane) {
  const ControlHeader& head = header();
  if (auto good = check_header(head, control_.size(), data_.size()); !good) return good;
  if (lane >= head.lane_count) return bad_ring(fmt::format("found lane {} of {}", lane, head.lane_count));
  if (lease().magic != kLeaseMagic) return bad_ring("the lease segment has the wrong magic number");
  if (lease().layout_version != kLayoutVersion)
    return fail(ErrorCode::kVersionMismatch,
                fmt::format("the server's lease segment has layout version {}, this client writes version {}",
                            lease().layout_version, kLayoutVersion));
  slots_offset_ = head.slots_offset;
  slot_stride_ = head.slot_stride;
  rows_offset_ = head.rows_offset;
  slot_count_ = head.slot_count;
  checked_at_.resize(slot_count_);
  views_ = std::make_unique<std::atomic<std::uint32_t>[]>(slot_count_);
  row_capacity_ = head.row_capacity;
  lane_ = reinterpret_cast<const LaneBlock*>(control_.data() + head.lanes_offset) + lane;
  attachment_ = lane_->attachment.load(std::memory_order_acquire);
  return check_fields();
}

Result<void> RingReader::check_fields() {
  const auto* descs = reinterpret_cast<const FieldDesc*>(control_.data() + header().fields_offset);
  descs_.assign(descs, descs + header().field_count);
  for (const FieldDesc& desc : descs_) {
    auto spec = to_spec(desc);
    if (!spec) return fail(spec.error());
    const bool ragged = spec->kind == FieldKind::kRagged;
    const std::uint64_t offsets_bytes = (std::uint64_t{row_capacity_} + 1) * sizeof(std::int64_t);
    if (!lies_within(desc.values_offset, desc.values_bytes, slot_stride_) ||
        (ragged &&
         (desc.offsets_offset == 0 || !lies_within(desc.offsets_offset, offsets_bytes, slot_stride_))) ||
        // A quotient, because a product could overflow: to_spec() has checked that there is no rest.
        (!ragged && (desc.offsets_offset != 0 || desc.values_bytes / row_bytes(*spec) != row_capacity_)))
      return bad_ring(fmt::format("field '{}' does not fit a slot", spec->name));
    specs_.push_back(std::move(*spec));
  }
  return {};
}

}  // namespace headrace::ring
