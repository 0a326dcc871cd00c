// The weight of each sample of a source, for sampling by weight.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "server/source/source.h"

namespace headrace::server::source {

/// Reads a text file that covers the whole source, even if `source` is a part of one. The first non-empty
/// line decides the form: a single number means one weight per line for each sample of the whole, in its
/// order; otherwise lines are "relative/path weight", separated by spaces or tabs, in any order. `other`: the
/// weight of samples whose paths are not in the file. kConfigInvalid with file:line, for up to 20 lines:
/// another form, a weight that is negative, infinite or not a number, a path that is unknown or listed twice;
/// without `other`: samples without a weight.
Result<std::vector<double>> read_weights(const Source& source, const std::filesystem::path& file,
                                         std::optional<double> other);

/// Reads a field with one number per sample: kValues of shape {} or {1}. Reads every sample once.
/// kConfigInvalid: no such field, or a wrong weight, for up to 20 samples; otherwise read()'s errors.
Result<std::vector<double>> weights_in_field(const Source& source, const std::string& field);

}  // namespace headrace::server::source
