// Where to go on from a saved state. Pure.
#pragma once

#include "headrace/client.h"

namespace headrace::client {

/// The cursor that continues `state` for a group of `world_size` over `stream`: the same one at the same
/// sizes; at others, an origin behind all samples that were handed out, on every rank, so that each remaining
/// sample comes exactly once. kFingerprintMismatch says which part of the stream changed.
Result<Cursor> resume_cursor(const State& state, const StreamInfo& stream, std::uint32_t world_size);

}  // namespace headrace::client
