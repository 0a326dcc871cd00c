// A source that delays every read, as if it were on a network: for trials.
#pragma once

#include <chrono>
#include <thread>

#include "server/source/combine/forwarding.h"

namespace headrace::server::io {

class Delayed final : public source::ForwardingSource {
 public:
  Delayed(std::shared_ptr<const source::Source> real, std::chrono::nanoseconds delay)
      : ForwardingSource(std::move(real)), delay_(delay) {}

  Result<void> read(std::uint64_t index, source::Sample& out) const override {
    std::this_thread::sleep_for(delay_);
    return ForwardingSource::read(index, out);
  }

 private:
  std::chrono::nanoseconds delay_;
};

}  // namespace headrace::server::io
