// Why rows are no longer made: of a stream, or of one call of a Maker. Thread safety: any thread.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "headrace/error.h"

namespace headrace::server::exec {

class Failure {
 public:
  /// `first`: called with the first reason.
  explicit Failure(std::function<void(const Error&)> first = {}) : first_(std::move(first)) {}

  /// Only the first reason counts.
  void stop(const Error& reason) {
    {
      const std::scoped_lock lock(mutex_);
      if (failed()) return;
      reason_ = reason;
      mark();
    }
    if (first_) first_(reason);
  }
  void mark() noexcept { failed_.store(true, std::memory_order_release); }  ///< without a reason
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] Error reason() const {
    const std::scoped_lock lock(mutex_);
    return reason_;
  }

 private:
  const std::function<void(const Error&)> first_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  Error reason_;  // guarded by mutex_
};

}  // namespace headrace::server::exec
