#include "clientlib/ring/slot_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "clientlib/base/contract.h"
#include "clientlib/ring/private_pages.h"

namespace headrace::ring {
namespace {

constexpr std::uint64_t kLargest = std::uint64_t{1}
                                   << 48;  // larger than an address space, so that no sum of two overflows

bool well_formed(std::string_view name) {
  return !name.empty() && name.size() < sizeof(FieldDesc::name) && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::optional<std::uint64_t> times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > kLargest) return std::nullopt;
  return product;
}

std::optional<std::uint64_t> checked_row_bytes(const FieldSpec& field) {
  std::optional<std::uint64_t> bytes = size_of(field.dtype);
  for (const std::int64_t dim : field.shape) {
    if (dim <= 0) return std::nullopt;
    bytes = times(*bytes, static_cast<std::uint64_t>(dim));
    if (!bytes) return std::nullopt;
  }
  return *bytes == 0 ? std::nullopt : bytes;
}

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

tl::unexpected<Error> refuse(const FieldSpec& field, std::string_view what) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("field '{}': {}", field.name, what));
}

}  // namespace

Result<SlotLayout> SlotLayout::plan(std::span<const FieldSpec> fields, std::uint32_t rows) {
  if (fields.empty()) return fail(ErrorCode::kInvalidArgument, "a batch needs at least one field");
  if (fields.size() > kMaxFields)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a batch has {} fields, expected at most {}", fields.size(), kMaxFields));
  if (rows == 0) return fail(ErrorCode::kInvalidArgument, "the batch size must be at least 1");

  SlotLayout layout;
  layout.row_capacity = rows;
  std::uint64_t end = 0;
  const auto place = [&end](std::uint64_t bytes) {
    const std::uint64_t at = align_up(end, kCacheLine);
    end = at + bytes;
    return at;
  };
  for (const FieldSpec& field : fields) {
    if (!well_formed(field.name)) return refuse(field, "its name must have 1 to 47 bytes of [a-z0-9_]");
    if (std::ranges::count(fields, field.name, &FieldSpec::name) > 1)
      return refuse(field, "two fields have this name");
    if (field.shape.size() > kMaxDims)
      return refuse(field, fmt::format("{} dimensions, expected at most {}", field.shape.size(), kMaxDims));
    const auto row = checked_row_bytes(field);
    if (!row) return refuse(field, "every dimension must be positive, and a row must fit into memory");
    const bool ragged = field.kind == FieldKind::kRagged;
    if (ragged && field.ragged_capacity <= 0) return refuse(field, "ragged_capacity must be positive");
    const auto bytes = times(*row, ragged ? static_cast<std::uint64_t>(field.ragged_capacity) : rows);
    if (!bytes) return refuse(field, "a batch of it does not fit into memory");

    FieldDesc desc{};
    std::memcpy(desc.name, field.name.data(), field.name.size());
    desc.dtype = static_cast<std::uint8_t>(field.dtype);
    desc.kind = static_cast<std::uint8_t>(field.kind);
    desc.rank = static_cast<std::uint8_t>(field.shape.size());
    std::ranges::copy(field.shape, desc.shape);
    desc.values_bytes = *bytes;
    desc.values_offset = place(*bytes);
    if (ragged) desc.offsets_offset = place((std::uint64_t{rows} + 1) * sizeof(std::int64_t));
    layout.fields.push_back(desc);
  }
  layout.rows_offset = place(std::uint64_t{rows} * sizeof(RowDesc));
  layout.slot_stride = align_up(end, page_size());
  if (layout.slot_stride > kLargest)
    return fail(ErrorCode::kInvalidArgument, "the fields together do not fit into memory");
  return layout;
}

std::byte* SlotMemory::values(std::size_t field) const {
  require(field < layout_->fields.size(), "a field that a slot does not have");
  return begin_ + layout_->fields[field].values_offset;
}

std::size_t SlotMemory::value_bytes(std::size_t field) const {
  require(field < layout_->fields.size(), "a field that a slot does not have");
  return layout_->fields[field].values_bytes;
}

std::int64_t* SlotMemory::offsets(std::size_t field) const {
  require(field < layout_->fields.size(), "a field that a slot does not have");
  const std::uint64_t offset = layout_->fields[field].offsets_offset;
  require(offset != 0, "a dense field has no offsets");
  return reinterpret_cast<std::int64_t*>(begin_ + offset);
}

RowDesc* SlotMemory::rows() const {
  return reinterpret_cast<RowDesc*>(begin_ + layout_->rows_offset);
}

Result<FieldSpec> to_spec(const FieldDesc& desc) {
  const std::string_view name(desc.name, ::strnlen(desc.name, sizeof desc.name));
  const auto bad = [&](std::string_view what) {
    return fail(ErrorCode::kBadMessage, fmt::format("field table of the ring: {}", what));
  };
  if (!well_formed(name)) return bad("a name is not 1 to 47 bytes of [a-z0-9_]");
  if (desc.rank > kMaxDims) return bad("too many dimensions");
  FieldSpec spec;
  spec.name = name;
  spec.dtype = static_cast<DType>(desc.dtype);
  spec.kind = static_cast<FieldKind>(desc.kind);
  spec.shape.assign(desc.shape, desc.shape + desc.rank);
  const auto row = checked_row_bytes(spec);
  if (!row) return bad("an unknown element type or an impossible size");
  if (spec.kind != FieldKind::kDense && spec.kind != FieldKind::kRagged)
    return bad("an unknown kind of field");
  if (desc.values_offset % kCacheLine != 0 || desc.offsets_offset % kCacheLine != 0 ||
      desc.values_bytes > kLargest || desc.values_bytes % *row != 0)
    return bad("an offset is not aligned, or an offset or size is too large");
  if (spec.kind == FieldKind::kRagged)
    spec.ragged_capacity = static_cast<std::int64_t>(desc.values_bytes / *row);
  return spec;
}

}  // namespace headrace::ring
