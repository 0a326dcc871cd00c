#include "clientlib/gpu/host/host_rows.h"

#include <cstdlib>
#include <memory>
#include <new>

#include "clientlib/gpu/rows/kernel.h"

namespace headrace::gpu {
namespace {

/// Runs a block's threads one after the other between two barriers, alternately from the first and from the
/// last one, so that a race between threads changes the result.
class HostBlock {
 public:
  HostBlock(std::size_t bytes, bool forward)
      : memory_(static_cast<std::uint8_t*>(std::aligned_alloc(16, (bytes + 15) / 16 * 16)), &std::free),
        forward_(forward) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  template <class F>
  void each(F&& f) {
    forward_ = !forward_;
    for (std::int32_t i = 0; i < kRowThreads; ++i) f(forward_ ? i : kRowThreads - 1 - i);
  }
  [[nodiscard]] std::uint8_t* shared() { return memory_.get(); }
  static void add(unsigned long long* to, unsigned long long value) { *to += value; }

 private:
  std::unique_ptr<std::uint8_t, decltype(&std::free)> memory_;
  bool forward_;
};

template <class F>
void each_block(const RowJob& job, F&& run) {
  for (std::int32_t number = 0; number < job.rows * job.parts; ++number) {
    HostBlock block(static_cast<std::size_t>(row_shared_bytes(job)), number % 2 == 0);
    run(block, number);
  }
}

}  // namespace

void run_on_host(const RowJob& job) {
  for (std::int32_t contrast = 0; contrast < job.contrasts; ++contrast)
    each_block(job, [&](HostBlock& block, std::int32_t number) {
      if (job.channels == 3) return sum_grays<3>(block, job, contrast, number);
      sum_grays<1>(block, job, contrast, number);
    });
  with_variant(job, [&](auto channels, auto conversion, auto colors) {
    each_block(job, [&](HostBlock& block, std::int32_t number) {
      run_rows<channels(), conversion(), colors()>(block, job, number);
    });
  });
}

}  // namespace headrace::gpu
