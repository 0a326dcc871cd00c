// The lines that `headrace check` prints about a valid configuration: its streams, sharing, caches and
// memory.
#pragma once

#include "server/assembly/assemble.h"
#include "server/config/config.h"
#include "server/verbs/told.h"

namespace headrace::server::verbs {

/// Prints the fields of a stream, and where they are computed. Calls begin_stream().
void describe_stream(Told& told, const exec::StreamSetup& setup, const assembly::Assembly& assembly,
                     const config::Config& config);
/// Which streams share rows, which share none, and why.
void describe_sharing(Told& told, const assembly::Assembly& assembly, const config::Config& config);
/// How many samples the caches hold, estimated from those that were tried.
void describe_caches(Told& told, const assembly::Assembly& assembly);
/// The memory that is available, and what needs it.
void describe_memory(Told& told, const assembly::Assembly& assembly, const ring::MemoryHeadroom& room);

}  // namespace headrace::server::verbs
