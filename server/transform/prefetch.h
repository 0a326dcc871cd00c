// What will be read soon is asked for ahead.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::server::transform {

/// Asks for every cache line that `bytes` touch, the one in which they end too: their number rounded up
/// leaves that out where they begin within a line. Into the second cache, of which more lines can be under
/// way than of the first. Of more than a page the beginning: the rest follows in the order of addresses,
/// which the hardware foresees.
inline void prefetch(std::span<const std::uint8_t> bytes) {
  constexpr std::uintptr_t kLine = 64;
  constexpr std::size_t kMost = 4096;
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto end = begin + std::min(bytes.size(), kMost);
  for (std::uintptr_t line = begin - begin % kLine; begin < end && line < end; line += kLine)
    __builtin_prefetch(reinterpret_cast<const void*>(line), 0,
                       2);  // NOLINT(performance-no-int-to-ptr): lines are numbers
  asm volatile("");         // GCC leaves out calls of a function that only prefetches, as without effect
}

}  // namespace headrace::server::transform
