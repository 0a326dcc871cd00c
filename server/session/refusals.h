// Log lines about peers that are refused, of which no peer can cause many.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "clientlib/ring/futex.h"
#include "server/log/log.h"

namespace headrace::server::session {

/// One reason for refusing peers. Counts each refusal, and logs at most one in kLogIntervalNs, after a line
/// with the number of those that were not logged. Formats only in log::warn(), which never throws: libzmq's
/// thread calls this, too.
///
/// Thread safety: any thread.
class Refusals {
 public:
  template <class... Args>
  void refuse(fmt::format_string<Args...> text, Args&&... args) {
    count_.fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t now = ring::monotonic_ns();
    std::uint64_t last = logged_ns_.load(std::memory_order_relaxed);
    if ((last != 0 && now - last < kLogIntervalNs) || !logged_ns_.compare_exchange_strong(last, now)) {
      unlogged_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    const std::uint64_t more = unlogged_.exchange(0, std::memory_order_relaxed);
    if (more != 0) log::warn("{} refusals like the next one were not logged", more);
    log::warn(text, std::forward<Args>(args)...);
  }
  [[nodiscard]] std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kLogIntervalNs = 5'000'000'000;

  std::atomic<std::uint64_t> count_{0}, logged_ns_{0}, unlogged_{0};
};

}  // namespace headrace::server::session
