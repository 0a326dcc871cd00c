// Names of devices, as users give them.
#pragma once

#include <optional>
#include <string_view>

#include "headrace/error.h"

namespace headrace::gpu {

/// N of "cuda:N" (0 of "cuda"); nothing of "host"; kInvalidArgument of others.
Result<std::optional<int>> device_ordinal(std::string_view name);

}  // namespace headrace::gpu
