// Runs the same work on many items, several at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace headrace::server::source {

inline std::size_t processors() {
  return std::max(std::thread::hardware_concurrency(), 1U);
}

/// Runs `work` for 0 to count - 1 on that many threads, or on as many as can be started, and returns when all
/// is done. Throws the first exception of `work`; no further item is begun after it.
template <class Work>
void for_each_at_once(std::size_t count, const Work& work, std::size_t at_once = processors()) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr exception;
  const auto loop = [&]() noexcept {
    try {
      for (std::size_t i = next.fetch_add(1); i < count && !failed; i = next.fetch_add(1)) work(i);
    } catch (...) {
      if (!failed.exchange(true)) exception = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  const std::size_t wanted = std::min(at_once, count);
  try {
    for (std::size_t i = 1; i < wanted; ++i) threads.emplace_back(loop);
  } catch (const std::exception&) {  // no more threads, or no memory: the existing threads do the work
  }
  loop();
  for (std::thread& thread : threads) thread.join();
  if (exception) std::rethrow_exception(exception);
}

}  // namespace headrace::server::source
