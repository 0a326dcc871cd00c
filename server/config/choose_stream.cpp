#include "server/config/choose_stream.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::server::config {

Result<std::string> choose_stream(const std::vector<std::string>& names, const std::string& asked) {
  const std::string name = !asked.empty() ? asked : names.size() == 1 ? names.front() : "train";
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  if (asked.empty())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("several streams, and none is named `train`: name one of them: {}",
                            fmt::join(names, ", ")));
  return fail(ErrorCode::kNoSuchStream,
              fmt::format("no stream `{}`; expected one of: {}", name, fmt::join(names, ", ")));
}

}  // namespace headrace::server::config
