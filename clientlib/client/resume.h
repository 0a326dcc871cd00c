// The cursor at which a saved state resumes. Pure.
#pragma once

#include "headrace/client.h"

namespace headrace::client {

/// The cursor from which a group of `world_size` ranks continues `state` over `stream`. At the same world
/// size and batch size it is the state's cursor. At others its origin is behind all samples that the ranks
/// have received, so that each remaining sample comes exactly once. kFingerprintMismatch names the part of
/// the stream that changed.
Result<Cursor> resume_cursor(const State& state, const StreamInfo& stream, std::uint32_t world_size);

}  // namespace headrace::client
