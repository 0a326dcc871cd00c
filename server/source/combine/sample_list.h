// Lists of samples by index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "server/source/source.h"

namespace headrace::server::source {

/// Reads one index per line, as batches report it (in the whole source); repeats are allowed. Returns indices
/// in `source`. kConfigInvalid with file:line, for up to 20 lines: not a whole number, not a sample of
/// `source`; also for an empty list.
Result<std::vector<std::uint64_t>> read_sample_list(const Source& source, const std::filesystem::path& file);

}  // namespace headrace::server::source
