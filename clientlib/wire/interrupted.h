// libzmq reports a signal that arrives during a call as an exception, EINTR.
#pragma once

#include <cerrno>
#include <zmq.hpp>

namespace headrace::wire {

/// Calls `call`, and calls it again for as long as a signal interrupts it.
template <class Call>
auto through_signals(const Call& call) -> decltype(call()) {
  for (;;) {
    try {
      return call();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
  }
}

}  // namespace headrace::wire
