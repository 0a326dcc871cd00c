// Ends decoding when a server stops, because one image may take seconds.
#pragma once

#include <atomic>

namespace headrace::server::decode {

/// Thrown by decoders. Not a std::exception: whoever handles errors of a sample must not handle this one.
struct Stopped {};

/// While it exists, decoding on this thread ends with Stopped once `flag` is true.
class StopOn {
 public:
  explicit StopOn(const std::atomic<bool>& flag);
  ~StopOn();
  StopOn(const StopOn&) = delete;
  StopOn& operator=(const StopOn&) = delete;
};

/// Whether this thread's flag is true.
bool must_stop() noexcept;
void throw_if_stopped();

}  // namespace headrace::server::decode
