// The steps that every copy of a leased batch needs: pinning its ring, and counting staged copies.
#pragma once

#include <memory>

#include "clientlib/client/lease.h"
#include "headrace/gpu.h"

namespace headrace::gpu {

/// Pins the lease's ring, if it has one, then calls `copy`, which may end the lease. A staged copy is counted
/// in the client's lease segment, where the server reads it.
template <class F>
Result<Completion> copy_leased(CopyEngine& engine, const BatchView::Lease& lease, F copy) {
  std::shared_ptr<ring::RingReader> reader;  // null: the batch is a private copy, not in a ring
  if (lease.attachment) {
    reader = lease.attachment->reader;
    engine.register_mapping(reader->data(), reader);
  }
  const std::uint64_t staged = engine.stats().staged_copies;
  Result<Completion> copied = copy();
  if (reader && engine.stats().staged_copies > staged)
    reader->lease().staged_copies.fetch_add(1, std::memory_order_relaxed);
  return copied;
}

}  // namespace headrace::gpu
