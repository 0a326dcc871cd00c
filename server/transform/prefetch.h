// What will be read soon is asked for ahead.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::server::transform {

/// Asks for every cache line that [from, from + size) touches: `size` rounded up is not enough, where it
/// begins within one. Into the second cache, of which more lines can be under way than of the first.
inline void prefetch(const std::uint8_t* from, std::size_t size) {
  constexpr std::uintptr_t kLine = 64;
  const std::uint8_t* const end = from + size;
  for (from -= reinterpret_cast<std::uintptr_t>(from) % kLine; from < end; from += kLine)
    __builtin_prefetch(from, 0, 2);
  asm volatile("");  // GCC leaves out calls of a function that only prefetches, as without effect
}

}  // namespace headrace::server::transform
