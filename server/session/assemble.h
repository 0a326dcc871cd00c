// From configuration to running parts: sources opened, parts cut, plans compiled, rings sized.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/error.h"
#include "server/config/config.h"
#include "server/exec/stream.h"
#include "server/session/caches.h"

namespace headrace::server::session {

struct Assembly {
  std::vector<exec::StreamSetup> streams;
  CachesInUse caches;
};

/// Opens every source once and prepares every stream, without taking memory. Errors name source or stream.
Result<Assembly> assemble(const config::Config& config);

/// Bytes of shared memory that a stream's ring takes.
Result<std::uint64_t> ring_bytes(const exec::StreamSetup& setup);

}  // namespace headrace::server::session
