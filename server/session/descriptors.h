// Descriptors, when they run short. Files of the dataset and the sessions that exist go before new
// connections: those are refused while only the reserve is left (admission.h).
//
// libzmq aborts when accept(2) on an ipc socket gives EMFILE, does not bound its connections, and cannot be
// given an accepted socket, so admission.h refuses them. The kernel gives out the lowest free descriptor: its
// number shows about how many are in use.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>

namespace headrace::server::session {

/// The server never uses more, whatever RLIMIT_NOFILE allows.
inline constexpr std::size_t kMostDescriptors = std::size_t{1} << 20;

/// Raises the soft RLIMIT_NOFILE to the hard one, to kMostDescriptors at most.
void raise_descriptor_limit();

/// RLIMIT_NOFILE, at most kMostDescriptors.
int descriptor_limit();

/// A quarter of RLIMIT_NOFILE, 16 to 256: a worker needs one at a time, a session that is being made five.
int reserved_descriptors();

/// Whether so few are left that `fd`, the last one given out, came from the reserve.
bool in_reserve(int fd);

}  // namespace headrace::server::session
