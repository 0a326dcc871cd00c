#include "server/config/choose_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "clientlib/base/nearest.h"
#include "server/config/config.h"

namespace headrace::server::config {

Result<std::string> choose_stream(const std::vector<std::string>& names, const std::string& asked) {
  const std::string name = !asked.empty() ? asked : names.size() == 1 ? names.front() : "train";
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  if (asked.empty())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("several streams, and none is named `train`: name one of them: {}",
                            fmt::join(names, ", ")));
  return fail(no_such_stream(name, names));
}

Result<std::string> choose_stream(const Config& config, const std::string& asked) {
  std::vector<std::string> names;
  for (const auto& [name, ignored] : config.streams) names.push_back(name);
  return choose_stream(names, asked);
}

}  // namespace headrace::server::config
