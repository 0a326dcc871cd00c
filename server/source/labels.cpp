#include "server/source/labels.h"

#include <fmt/format.h>

namespace headrace::server::source {

std::string label_out_of_range(const std::string& what, std::int64_t label,
                               const std::vector<std::string>& classes) {
  if (label < 0)
    return fmt::format("{} is {}, but classes count from 0; leave the sample out or number it anew", what,
                       label);
  if (!classes.empty())
    return fmt::format("{} is {}, which has no class: `classes` names {}", what, label, classes.size());
  return fmt::format("{} is {}; without `classes` labels are below {}: it is no class, or number them anew",
                     what, label, kMostNumberedClasses);
}

std::vector<std::string> numbered_classes(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t label = 0; label < count; ++label) names.push_back(std::to_string(label));
  return names;
}

}  // namespace headrace::server::source
