// For "did you mean" in errors: the known name that is nearest to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "headrace/error.h"

namespace headrace {

/// The candidate with the smallest edit distance to the name, if that is at most 2 or a third of the longer
/// name. Case, and - instead of _, do not count. Empty if no candidate is that near.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

/// "; did you mean `train`?", to append to a message; empty if no candidate is that near. `quote`: '"' in
/// messages that show a value as it is written in a file.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates, char quote = '`');

/// kNoSuchStream, with the streams that there are.
Error no_such_stream(std::string_view name, std::span<const std::string> streams);

}  // namespace headrace
