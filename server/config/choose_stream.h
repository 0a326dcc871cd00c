#pragma once

#include <string>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::config {

struct Config;

/// The stream that was asked for; if `asked` is empty: the only one, or else `train`. kInvalidArgument: there
/// are several, but no `train`. kNoSuchStream: there is none of this name.
Result<std::string> choose_stream(const std::vector<std::string>& names, const std::string& asked);
/// The same among a configuration's streams.
Result<std::string> choose_stream(const Config& config, const std::string& asked);

}  // namespace headrace::server::config
