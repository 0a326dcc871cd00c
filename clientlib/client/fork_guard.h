// Detects the use of an object in a forked child that inherited it. A check is one relaxed load, no system
// call.
#pragma once

#include <cstdint>

#include "headrace/error.h"

namespace headrace::client {

/// The number of forks between the process that loaded the library and this one.
std::uint64_t fork_generation();

/// Remembers the process that created it.
class ForkGuard {
 public:
  ForkGuard() : generation_(fork_generation()) {}
  [[nodiscard]] bool forked() const { return generation_ != fork_generation(); }
  /// kForked, which names `what`, in a forked child.
  [[nodiscard]] Result<void> check(const char* what) const;

 private:
  std::uint64_t generation_;
};

}  // namespace headrace::client
