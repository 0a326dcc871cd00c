#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "clientlib/base/contract.h"
#include "clientlib/client/lease.h"
#include "clientlib/client/private_views.h"

namespace headrace {
namespace {

using Lease = BatchView::Lease;

/// Sets rows and fields to those of a slot.
template <class Slot>
void describe(Lease& lease, const Slot& slot) {
  lease.row = slot.rows();
  lease.fields.reserve(lease.specs->size());
  for (std::size_t f = 0; f < lease.specs->size(); ++f) {
    const FieldSpec& spec = (*lease.specs)[f];
    Lease::Field field{slot.values(f), nullptr, {}, lease.rows};
    if (spec.kind == FieldKind::kRagged) {
      field.offsets = {slot.offsets(f), lease.rows + std::size_t{1}};
      field.count = std::clamp<std::int64_t>(field.offsets.back(), 0, spec.ragged_capacity);
    }
    lease.fields.push_back(field);
  }
}

/// A slot of an attached ring.
struct RingSlot {
  const ring::RingReader& reader;
  std::uint32_t slot;
  [[nodiscard]] const std::byte* values(std::size_t field) const { return reader.values(slot, field); }
  [[nodiscard]] const std::int64_t* offsets(std::size_t field) const { return reader.offsets(slot, field); }
  [[nodiscard]] const ring::RowDesc* rows() const { return reader.rows(slot); }
};

void describe(Lease& lease, const client::Attachment& attachment) {
  const ring::RingReader& reader = *attachment.reader;
  const ring::SlotDesc& slot = reader.slot(lease.grant.slot);
  lease.rows = std::min(slot.rows, reader.row_capacity());
  lease.valid_rows = std::min(slot.valid_rows, lease.rows);
  lease.specs = attachment.fields;
  describe(lease, RingSlot{reader, lease.grant.slot});
}

/// Copies the rows and fields of the lease's slot into memory that the lease owns.
void make_private(Lease& lease, const std::shared_ptr<client::BufferPool>& pool) {
  lease.row_copies.assign(lease.row, lease.row + lease.rows);
  lease.row = lease.row_copies.data();
  for (std::size_t f = 0; f < lease.fields.size(); ++f) {
    Lease::Field& field = lease.fields[f];
    const std::size_t bytes = row_bytes((*lease.specs)[f]) * static_cast<std::size_t>(field.count);
    field.copy = std::make_shared<client::PooledBuffer>(pool, bytes);
    if (bytes > 0) std::memcpy(field.copy->data(), field.values, bytes);
    field.values = field.copy->data();
    if (!field.offsets.empty())
      field.offsets = lease.offset_copies.emplace_back(field.offsets.begin(), field.offsets.end());
  }
}

}  // namespace

std::shared_ptr<Lease> Lease::on_slot(const std::shared_ptr<client::Attachment>& attachment,
                                      const ring::Grant& grant, bool own) {
  auto lease = std::make_shared<Lease>();
  lease->grant = grant;
  attachment->live_views.fetch_add(1, std::memory_order_relaxed);
  lease->attachment = attachment;
  attachment->reader->begin_view(grant.slot);
  lease->faults = attachment->reader->freshen(grant.slot);  // before a fork can settle the view
  if (own) client::enter_private_view(*lease);
  describe(*lease, *attachment);
  return lease;
}

std::shared_ptr<Lease> Lease::copy_of(const client::Attachment& attachment, const ring::Grant& grant,
                                      const std::shared_ptr<client::BufferPool>& pool) {
  auto lease = std::make_shared<Lease>();
  lease->grant = grant;
  const std::shared_ptr<void> ack(
      nullptr, [&](void*) { attachment.reader->ack(grant); });  // also if an allocation below fails
  attachment.reader->freshen(grant.slot);
  describe(*lease, attachment);
  make_private(*lease, pool);
  return lease;
}

std::shared_ptr<Lease> Lease::on_memory(std::shared_ptr<const void> memory, const ring::SlotMemory& slot,
                                        std::shared_ptr<const std::vector<FieldSpec>> fields,
                                        const Cursor& batch, std::uint32_t rows, std::uint32_t valid_rows) {
  auto lease = std::make_shared<Lease>();
  lease->grant.epoch = batch.epoch;
  lease->grant.batch = batch.batch;
  lease->rows = rows;
  lease->valid_rows = valid_rows;
  lease->memory = std::move(memory);
  lease->specs = std::move(fields);
  describe(*lease, slot);
  return lease;
}

BatchView::Lease::~Lease() {
  if (mapping != nullptr) {
    client::end_private_view(*this);
  } else if (attachment != nullptr && !attachment->fork.forked()) {
    // The loop should not have written to this view; if it has, restore the slot's pages.
    if (attachment->reader->private_pages() != nullptr && (!faults || faults != ring::PrivatePages::faults()))
      attachment->reader->drop_private_pages(grant.slot);
    attachment->reader->end_view(grant.slot);
    attachment->live_views.fetch_sub(1, std::memory_order_relaxed);
    attachment->reader->ack(grant);
  }
}

BatchView::BatchView(std::shared_ptr<Lease> lease) : lease_(std::move(lease)) {}
BatchView::BatchView(BatchView&&) noexcept = default;
BatchView& BatchView::operator=(BatchView&&) noexcept = default;
BatchView::~BatchView() = default;

void BatchView::release() {
  lease_.reset();
}

namespace {

const Lease& held(const std::shared_ptr<Lease>& lease) {
  require(lease != nullptr, "a BatchView was used after release() or after it was moved from");
  return *lease;
}

RowInfo info_of(const ring::RowDesc& row) {
  return {row.sample_index, (row.flags & ring::kRowValid) != 0, (row.flags & ring::kRowReplaced) != 0};
}

}  // namespace

std::uint64_t BatchView::epoch() const {
  return held(lease_).grant.epoch;
}
std::uint64_t BatchView::batch() const {
  return held(lease_).grant.batch;
}
std::uint32_t BatchView::rows() const {
  return held(lease_).rows;
}
std::uint32_t BatchView::valid_rows() const {
  return held(lease_).valid_rows;
}
RowInfo BatchView::row(std::uint32_t at) const {
  require(at < held(lease_).rows, "a BatchView was asked for a row that it does not have");
  return info_of(lease_->row[at]);
}
std::vector<RowInfo> BatchView::all_rows() const {
  const Lease& lease = held(lease_);
  std::vector<RowInfo> rows(lease.rows);
  std::transform(lease.row, lease.row + lease.rows, rows.begin(), info_of);
  return rows;
}
const std::vector<FieldSpec>& BatchView::fields() const {
  return *held(lease_).specs;
}
bool BatchView::private_copy() const {
  const Lease& lease = held(lease_);
  return lease.mapping != nullptr || lease.attachment == nullptr;
}

Result<FieldView> BatchView::field(std::string_view name) const {
  const Lease& lease = held(lease_);
  for (std::size_t f = 0; f < lease.specs->size(); ++f) {
    const FieldSpec& spec = (*lease.specs)[f];
    if (spec.name != name) continue;
    const Lease::Field& field = lease.fields[f];
    FieldView view{&spec, field.values, {field.count}, {}, field.offsets};
    if (private_copy()) view.writable = const_cast<std::byte*>(field.values);
    view.shape.insert(view.shape.end(), spec.shape.begin(), spec.shape.end());
    view.strides.resize(view.shape.size());
    auto stride = static_cast<std::int64_t>(size_of(spec.dtype));
    for (std::size_t d = view.shape.size(); d-- > 0; stride *= view.shape[d]) view.strides[d] = stride;
    return view;
  }
  std::vector<std::string_view> names;
  for (const FieldSpec& spec : *lease.specs) names.push_back(spec.name);
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("a batch has no field '{}'; it has: {}", name, fmt::join(names, ", ")));
}

std::shared_ptr<const void> BatchView::keep(std::size_t field) const {
  const Lease& lease = held(lease_);
  require(field < lease.fields.size(), "a BatchView was asked for a field that it does not have");
  if (lease.fields[field].copy != nullptr) return lease.fields[field].copy;
  return lease_;
}

std::size_t FieldView::bytes() const {
  return row_bytes(*spec) * static_cast<std::size_t>(shape[0]);
}

Result<FieldView> BatchView::field_of(std::string_view name, std::size_t bytes, bool floating) const {
  auto view = field(name);
  if (!view) return view;
  const DType dtype = view->spec->dtype;
  const bool is_floating = dtype == DType::kFloat32 || dtype == DType::kFloat64;
  // C++20 has no type for float16 and bfloat16: any of two bytes will do.
  if (size_of(dtype) == bytes && (is_floating == floating || bytes == 2)) return view;
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("field '{}' has {} values, it was asked for as {}-byte {}: call values() with its own "
                  "type, or set another `output: {{dtype: ...}}` in the stream's configuration",
                  name, name_of(dtype), bytes, floating ? "floating-point numbers" : "integers"));
}

}  // namespace headrace
