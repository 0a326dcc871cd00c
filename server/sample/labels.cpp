#include "server/sample/labels.h"

#include <fmt/format.h>

#include <algorithm>

#include "clientlib/base/nearest.h"

namespace headrace::server::sample {

std::string label_out_of_range(const std::string& what, std::int64_t label,
                               const std::vector<std::string>& classes) {
  if (label < 0)
    return fmt::format("{} is {}, but classes count from 0; remove the sample or renumber the classes", what,
                       label);
  if (!classes.empty())
    return fmt::format("{} is {}, which has no class: `classes` names {}", what, label, classes.size());
  return fmt::format(
      "{} is {}; without `classes` labels must be below {}: remove the sample, or renumber the classes", what,
      label, kMostNumberedClasses);
}

std::vector<std::string> numbered_classes(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t label = 0; label < count; ++label) names.push_back(std::to_string(label));
  return names;
}

bool are_numbers(const std::vector<std::string>& classes) {
  return classes == numbered_classes(static_cast<std::int64_t>(classes.size()));
}

std::string unknown_class(std::string_view name, const std::vector<std::string>& classes) {
  constexpr std::ptrdiff_t kShown = 10;
  return fmt::format(
      "class \"{}\", which does not exist; classes: {}{}{}", name,
      fmt::join(classes.begin(), classes.begin() + std::min(kShown, std::ssize(classes)), ", "),
      std::ssize(classes) > kShown ? fmt::format(", ... ({} in all)", classes.size()) : "",
      did_you_mean(name, classes, '"'));
}

}  // namespace headrace::server::sample
