#include <fmt/format.h>

#include <utility>

#include "clientlib/gpu/ring_copy.h"
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
  return copy_leased(*this, *lease, [&] { return copy(transfers, lease); });
}

}  // namespace headrace::gpu
