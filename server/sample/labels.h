// Classes and their numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::server::sample {

/// The most classes without names: each client receives the whole list.
inline constexpr std::int64_t kMostNumberedClasses = 100'000;

/// Labels are below this.
inline std::int64_t label_limit(const std::vector<std::string>& classes) {
  return classes.empty() ? kMostNumberedClasses : static_cast<std::int64_t>(classes.size());
}

/// Why `label` has no class, ending with a remedy. `what` names it: "the label of image 3".
std::string label_out_of_range(const std::string& what, std::int64_t label,
                               const std::vector<std::string>& classes);

/// "class "dgo", which does not exist; classes: cat, dog; did you mean "dog"?"
std::string unknown_class(std::string_view name, const std::vector<std::string>& classes);

/// "0", "1", ...: `count` names.
std::vector<std::string> numbered_classes(std::int64_t count);
/// Whether the names are numbered_classes().
bool are_numbers(const std::vector<std::string>& classes);

}  // namespace headrace::server::sample
