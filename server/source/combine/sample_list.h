// Lists of samples by their indices.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "server/source/source.h"

namespace headrace::server::source {

/// Reads one index a line, as batches report them (of the whole source), repeats allowed; gives indices of
/// `source`. kConfigInvalid, with file:line, for up to 20 lines: no whole number, no sample of
/// `source`; also a list without any.
Result<std::vector<std::uint64_t>> read_sample_list(const Source& source, const std::filesystem::path& file);

}  // namespace headrace::server::source
