// A worker's memory for the pixels in work.
#pragma once

#include <memory>

namespace headrace::server::transform {

/// Per-thread scratch: decoder handles, row buffers, coefficient tables. Not thread safe; one per worker,
/// reused.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(Scratch&&) noexcept;
  Scratch& operator=(Scratch&&) noexcept;
  struct State;
  State& state() { return *state_; }
  /// Rows bypass the caches if a kernel can do so: for rows that will have been evicted before they are read.
  /// It saves reading the memory that is overwritten. Call finish_streaming() before other threads may read
  /// the rows. Returns what was set before.
  bool set_streamed(bool streamed);
  static void finish_streaming();

 private:
  std::unique_ptr<State> state_;
};

}  // namespace headrace::server::transform
