// What every copy of a leased batch has around it.
#pragma once

#include <memory>

#include "clientlib/client/lease.h"
#include "headrace/gpu.h"

namespace headrace::gpu {

/// Pins the ring that the lease is on, if it is on one, then copies by `copy`, which may end the lease; the
/// server hears of it if that was staged.
template <class F>
Result<Completion> copy_leased(CopyEngine& engine, const BatchView::Lease& lease, F copy) {
  std::shared_ptr<ring::RingReader> reader;  // null: the batch is a copy
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
