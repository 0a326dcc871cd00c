// Parses the device names that users give.
#pragma once

#include <optional>
#include <string_view>

#include "headrace/error.h"

namespace headrace::gpu {

/// N for "cuda:N", 0 for "cuda", nothing for "host". Other names: kInvalidArgument.
Result<std::optional<int>> device_ordinal(std::string_view name);

}  // namespace headrace::gpu
