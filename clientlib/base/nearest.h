// "did you mean": the nearest right name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace headrace {

/// The candidate with the smallest edit distance (case and - against _ do not count), if it is near enough to
/// be meant: at most a third of the longer name, or 2. Empty if none is.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

}  // namespace headrace
