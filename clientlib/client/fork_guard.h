// Tells a forked child that it holds its parent's objects. One relaxed load per check: no system call.
#pragma once

#include <cstdint>

#include "headrace/error.h"

namespace headrace::client {

/// Counts the forks between the first process that loaded the library and this one.
std::uint64_t fork_generation();

/// Remembers the process that made it.
class ForkGuard {
 public:
  ForkGuard() : generation_(fork_generation()) {}
  [[nodiscard]] bool forked() const { return generation_ != fork_generation(); }
  /// kForked, naming `what`, in a child.
  [[nodiscard]] Result<void> check(const char* what) const;

 private:
  std::uint64_t generation_;
};

}  // namespace headrace::client
