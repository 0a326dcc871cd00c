// What will be read soon is asked for ahead.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::server::transform {

/// Asks for every cache line that [from, from + size) touches: `size` rounded up is not enough, where it
/// begins within one. Into the second cache, of which more lines can be under way than of the first.
inline void prefetch(const std::uint8_t* from, std::size_t size) {
  constexpr std::uintptr_t kLine = 64;
  const auto begin = reinterpret_cast<std::uintptr_t>(from), end = begin + size;
  for (std::uintptr_t line = begin - begin % kLine; size > 0 && line < end; line += kLine)
    __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);  // NOLINT(performance-no-int-to-ptr)
  asm volatile("");  // GCC leaves out calls of a function that only prefetches, as without effect
}

}  // namespace headrace::server::transform
