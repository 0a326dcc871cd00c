// Turns a configuration into running parts: opens sources, cuts parts, compiles plans, sizes rings.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "clientlib/ring/segment.h"
#include "headrace/error.h"
#include "server/assembly/caches.h"
#include "server/assembly/open_source.h"
#include "server/assembly/share_rows.h"
#include "server/config/config.h"
#include "server/exec/stream.h"
#include "server/source/formats/supplied.h"

namespace headrace::server::assembly {

struct Assembly {
  std::vector<exec::StreamSetup> streams;
  std::vector<std::string> unused;  ///< sources without a stream, which are not opened
  std::vector<SharingGroup> sharing;
  CachesInUse caches;
  /// Upper bounds for memory besides rings and caches: prefetched samples; the caches' tables and the feeds'
  /// slots.
  std::uint64_t read_ahead_bytes = 0, other_bytes = 0;
  std::vector<RemoteUse> remotes;
};

/// Opens every source once and prepares every stream, without allocating rings. `stop` ends network reads,
/// now and later. `supplied`: the source of all streams; null: the configured ones. Errors name the source or
/// stream, one line for each.
Result<Assembly> assemble(const config::Config& config, std::stop_token stop = {},
                          const std::shared_ptr<const source::Supplied>& supplied = nullptr);

/// The most bytes of rows that streams keep for one another.
std::uint64_t window_bytes(const Assembly& assembly);
/// The most bytes that the caches of an assembly use.
std::uint64_t cache_bytes(const Assembly& assembly);
/// The most bytes of windows, caches, prefetched samples, tables, tiles and feeds.
std::uint64_t bytes_beside_rings(const Assembly& assembly);
/// kNotEnoughMemory: besides `rings` bytes, the assembly may need more than `headroom`.
Result<void> check_memory(const Assembly& assembly, std::uint64_t rings,
                          const ring::MemoryHeadroom& headroom = ring::memory_headroom());

/// Shared memory of a stream's ring, which grows as clients attach.
struct RingSize {
  std::uint32_t clients = 0, first_slots = 0, further_slots = 0;
  std::uint64_t first_bytes = 0;    ///< with one client
  std::uint64_t further_bytes = 0;  ///< for each further one
  [[nodiscard]] std::uint64_t most() const { return first_bytes + (clients - 1) * further_bytes; }
};
Result<RingSize> ring_size(const exec::StreamSetup& setup);
/// "7 slots, 67.4 MB; 3 slots, 28.9 MB more for each further client, up to 4"
std::string to_string(const RingSize& size);
/// Empty, or a warning: not all clients that may attach would find memory. To be called before the rings are
/// allocated.
std::string short_of_memory(const Assembly& assembly,
                            const ring::MemoryHeadroom& headroom = ring::memory_headroom());

}  // namespace headrace::server::assembly
