// Prefetches memory that will soon be read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::server::transform {

/// Prefetches every cache line that `bytes` touch, including the last one: rounding up their number would
/// miss it if they begin within a line. Uses the L2 cache, which can fetch more lines at a time than L1. For
/// more than a page only the beginning: the rest follows in address order, which the hardware predicts.
inline void prefetch(std::span<const std::uint8_t> bytes) {
  constexpr std::uintptr_t kLine = 64;
  constexpr std::size_t kMost = 4096;
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto end = begin + std::min(bytes.size(), kMost);
  for (std::uintptr_t line = begin - begin % kLine; begin < end && line < end; line += kLine)
    __builtin_prefetch(reinterpret_cast<const void*>(line), 0,
                       2);  // NOLINT(performance-no-int-to-ptr): lines are numbers
  asm volatile("");         // GCC removes calls of a function that only prefetches
}

}  // namespace headrace::server::transform
