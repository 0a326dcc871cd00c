#include "clientlib/ring/checksum.h"

#include <algorithm>

#define XXH_INLINE_ALL  // the client library does not link libxxhash
#include <xxhash.h>

#include "headrace/field.h"

namespace headrace::ring {

std::uint64_t checksum_of(const SlotBytes& slot, std::uint32_t rows) {
  std::uint64_t sum = 0;
  const auto add = [&](std::uint64_t offset, std::uint64_t bytes) {
    sum = XXH3_64bits_withSeed(slot.begin + offset, bytes, sum);
  };
  for (const FieldDesc& field : slot.fields) {
    if (field.offsets_offset == 0) {
      add(field.values_offset, field.values_bytes / slot.row_capacity * rows);
      continue;
    }
    std::uint64_t value_bytes = size_of(static_cast<DType>(field.dtype));
    for (std::size_t d = 0; d < field.rank; ++d) value_bytes *= static_cast<std::uint64_t>(field.shape[d]);
    const auto* const offsets = reinterpret_cast<const std::int64_t*>(slot.begin + field.offsets_offset);
    const auto most = static_cast<std::int64_t>(field.values_bytes / value_bytes);
    add(field.offsets_offset, (rows + std::uint64_t{1}) * sizeof *offsets);
    add(field.values_offset,
        static_cast<std::uint64_t>(std::clamp<std::int64_t>(offsets[rows], 0, most)) * value_bytes);
  }
  add(slot.rows_offset, rows * sizeof(RowDesc));
  return std::max<std::uint64_t>(sum, 1);
}

}  // namespace headrace::ring
