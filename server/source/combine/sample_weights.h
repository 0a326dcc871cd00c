// What each sample of a source weighs, for sampling by weight.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "server/source/source.h"

namespace headrace::server::source {

/// From a text file, which is of the whole source also where `source` is a part of one. Its first line that
/// is not empty decides its form: a number alone: one weight a line for each sample of the whole, in its
/// order; else lines of "relative/path weight", with spaces or tabs between, in any order. `other`: of
/// samples whose paths are not in the file. kConfigInvalid, with file:line, for up to 20 lines: no such form,
/// a weight that is negative, infinite or no number, a path that is unknown or there twice; without `other`:
/// samples without a weight.
Result<std::vector<double>> read_weights(const Source& source, const std::filesystem::path& file,
                                         std::optional<double> other);

/// From a field that holds one number per sample: kValues, of shape {} or {1}. Reads every sample once.
/// kConfigInvalid: no such field, or up to 20 samples with no weight in it; otherwise read()'s.
Result<std::vector<double>> weights_in_field(const Source& source, const std::string& field);

}  // namespace headrace::server::source
