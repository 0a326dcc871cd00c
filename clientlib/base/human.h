// Sizes, times, counts and fractions as messages have them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace headrace {

/// "1.50 GB", "12.3 MB", "800 B"
std::string human_bytes(std::uint64_t bytes);
/// "1:02:03", "2:03"
std::string human_time(std::chrono::seconds time);
/// "[####....]", with `width` signs between the brackets. `part`: from 0 to 1.
std::string bar(double part, std::size_t width);
/// "1 sample", "2 samples"
std::string count_of(std::uint64_t count, const std::string& singular);

}  // namespace headrace
