// A block of a kernel's threads on the host.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace headrace::gpu {

/// A block of threads, one after the other between two barriers; in turns the first and the last one begins,
/// so that a race between two of them shows.
class HostBlock {
 public:
  HostBlock(std::int32_t threads, std::size_t bytes, bool forward)
      : memory_(static_cast<std::uint8_t*>(std::aligned_alloc(16, (bytes + 15) / 16 * 16)), &std::free),
        threads_(threads),
        forward_(forward) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  template <class F>
  void each(F&& f) {
    forward_ = !forward_;
    for (std::int32_t i = 0; i < threads_; ++i) f(forward_ ? i : threads_ - 1 - i);
  }
  [[nodiscard]] std::uint8_t* shared() { return memory_.get(); }
  static void add(unsigned long long* to, unsigned long long value) { *to += value; }

 private:
  std::unique_ptr<std::uint8_t, decltype(&std::free)> memory_;
  std::int32_t threads_;
  bool forward_;
};

}  // namespace headrace::gpu
