#include <fmt/format.h>

#include <utility>

#include "clientlib/client/lease.h"
#include "headrace/gpu.h"

namespace headrace::gpu {

Result<Completion> CopyEngine::copy(BatchView batch, std::span<const Destination> destinations) {
  std::vector<Transfer> transfers;
  transfers.reserve(destinations.size());
  for (const Destination& destination : destinations) {
    const auto field = batch.field(destination.field);
    if (!field) return fail(field.error());
    if (field->bytes() > destination.capacity)
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "field '{}' has {} bytes in this batch, its device buffer {}: allocate for a full batch",
              destination.field, field->bytes(), destination.capacity));
    transfers.push_back({field->data, destination.data, field->bytes()});
  }
  const std::shared_ptr<const BatchView::Lease> lease = batch.lease();
  if (lease->attachment) register_mapping(lease->attachment->reader->data(), lease->attachment->reader);
  const std::uint64_t staged_before = stats().staged_copies;
  auto completion = copy(transfers, lease);
  if (lease->attachment && stats().staged_copies > staged_before)
    lease->attachment->reader->lease().staged_copies.fetch_add(1, std::memory_order_relaxed);
  return completion;
}

}  // namespace headrace::gpu
