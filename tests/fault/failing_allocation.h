// Makes one allocation fail: the n-th of chosen threads. A program that links failing_allocation.cpp has its
// operators new, which then throw, and its malloc, calloc and realloc, which then return null.
//
// Not all allocations can fail:
//  - operator new: all but those with one of these functions anywhere in the call stack
//     - libzmq's, which aborts the process by design if it has no memory
//     - civetweb's and prometheus-cpp's, which serve the metrics port, which none of the phases uses
//     - googletest's
//     - nlohmann::json's destructor, which moves its children into a vector, but must not throw
//     - libstdc++ 12's path::operator/=, which crashes while it undoes its work if the left path ends
//       with a slash
//  - malloc and its relatives: only calls from the program itself, libjpeg, libspng and LMDB. The C library's
//    and the dynamic linker's own (thread-local memory, exceptions in flight) end the process, whoever calls.
//
// Sanitizers replace malloc themselves: there only operator new fails.
#pragma once

#include <cstdint>
#include <string>

namespace headrace::testing {

/// Whose allocations count.
enum class Threads : std::uint8_t {
  kThisThread,    ///< the order is the same in each run, so all n reach all allocations
  kMarkedThread,  ///< one that called FailingAllocation::mark_this_thread()
  kOtherThreads,  ///< all but the one that made the object; which n fails which allocation varies
  kAllThreads,
};

/// While it exists, allocation number `n` of these threads, counted from 0, fails. One at a time.
class FailingAllocation {
 public:
  FailingAllocation(Threads threads, std::uint64_t n);
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  ~FailingAllocation();

  /// The n-th allocation took place, whether or not it could fail.
  [[nodiscard]] bool reached() const;
  [[nodiscard]] bool failed() const;
  /// Allocations still to come before the n-th; the `n` for an object that goes on counting.
  [[nodiscard]] std::uint64_t left() const;
  /// The functions that asked for the memory that was last refused, innermost first: for messages.
  [[nodiscard]] static std::string stack();
  static void mark_this_thread();
};

}  // namespace headrace::testing
