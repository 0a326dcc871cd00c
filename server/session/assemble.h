// From configuration to running parts: sources opened, parts cut, plans compiled, rings sized.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "headrace/error.h"
#include "server/config/config.h"
#include "server/exec/stream.h"
#include "server/session/caches.h"
#include "server/session/open_source.h"

namespace headrace::server::session {

struct Assembly {
  std::vector<exec::StreamSetup> streams;
  std::vector<std::string> unused;  ///< sources that no stream serves, which are not opened
  CachesInUse caches;
  /// Memory that is taken beside rings and caches, at most: what is read ahead; caches' tables and feeds'
  /// slots.
  std::uint64_t read_ahead_bytes = 0, other_bytes = 0;
  std::vector<RemoteUse> remotes;
};

/// Opens every source once and prepares every stream, without taking memory. `stop` ends reads over the
/// network, now and later. Errors name source or stream, a line for each that is wrong.
Result<Assembly> assemble(const config::Config& config, std::stop_token stop = {});

/// Bytes that the caches of an assembly may take.
std::uint64_t cache_bytes(const Assembly& assembly);
/// kNotEnoughMemory: what an assembly may take beside `rings` bytes is more than this process can still take.
Result<void> check_memory(const Assembly& assembly, std::uint64_t rings);

/// Bytes of shared memory that a stream's ring takes.
Result<std::uint64_t> ring_bytes(const exec::StreamSetup& setup);

}  // namespace headrace::server::session
