// The query of a URL, checked against the parameters that a path has.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::metrics {

struct HttpParameter {
  std::string name;
  bool required = false;
};

using HttpParameters = std::map<std::string, std::string>;  ///< decoded values by name

/// kInvalidArgument: an unknown, repeated, empty or missing parameter, or text that is not UTF-8.
Result<HttpParameters> parse_query(std::string_view query, const std::vector<HttpParameter>& known);

}  // namespace headrace::server::metrics
