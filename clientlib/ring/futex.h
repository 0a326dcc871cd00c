// Waiting on a 32-bit word in shared memory (futex(2), not the PRIVATE flavor; the waiter's mapping may be
// read-only).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace headrace::ring {

/// The longest single sleep. Recovery never depends on a wake from a process that may have died: every waiter
/// checks again after this time.
inline constexpr std::chrono::milliseconds kLongestSleep{100};

/// Sleeps while `word == expected`, at most min(bound, kLongestSleep). Spurious returns are normal: re-check
/// and loop.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::nanoseconds bound);
void futex_wake_all(const std::atomic<std::uint32_t>& word);

/// CLOCK_MONOTONIC in ns: the only clock in Headrace's decisions.
std::uint64_t monotonic_ns();

}  // namespace headrace::ring
