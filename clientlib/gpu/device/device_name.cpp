#include "clientlib/gpu/device/device_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace headrace::gpu {

Result<std::optional<int>> device_ordinal(std::string_view name) {
  constexpr std::string_view kPrefix = "cuda:";
  if (name == "host") return std::nullopt;
  if (name == "cuda") return 0;
  int ordinal = 0;
  const std::string_view number = name.substr(std::min(kPrefix.size(), name.size()));
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), ordinal);
  if (!name.starts_with(kPrefix) || error != std::errc() || end != number.data() + number.size() ||
      ordinal < 0)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("unknown device '{}': expected \"cuda:N\", \"cuda\" or \"host\"", name));
  return ordinal;
}

}  // namespace headrace::gpu
