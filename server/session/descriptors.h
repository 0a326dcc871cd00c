// Handles a shortage of descriptors. Dataset files and existing sessions have priority over new connections,
// which are refused while only the reserve is left (admission.h).
//
// libzmq aborts when accept(2) on an ipc socket fails with EMFILE, does not limit its connections, and cannot
// be given an accepted socket, so admission.h refuses them. The kernel assigns the lowest free descriptor, so
// its number shows about how many are in use.
//
// Thread safety: any thread may call any function.
#pragma once

#include <cstddef>
#include <string>

#include "headrace/error.h"

namespace headrace::server::session {

/// The server uses no more, whatever RLIMIT_NOFILE allows.
inline constexpr std::size_t kMostDescriptors = std::size_t{1} << 20;

/// With fewer, the reserve would leave none for clients, and libzmq aborts when it starts with too few.
inline constexpr int kLeastDescriptors = 64;

/// Raises the soft RLIMIT_NOFILE to the hard one, to kMostDescriptors at most.
void raise_descriptor_limit();

/// RLIMIT_NOFILE, at most kMostDescriptors.
int descriptor_limit();

/// A quarter of RLIMIT_NOFILE, 16 to 256: a worker needs one at a time, a starting session needs five.
int reserved_descriptors();

/// Error: the sources and rings leave only the reserve, from which no client is accepted.
Result<void> check_descriptors();

/// A warning if `clients` clients would need more descriptors than are left; else empty.
std::string short_of_descriptors(int clients);

/// Whether `fd`, the latest descriptor, came from the reserve.
bool in_reserve(int fd);

}  // namespace headrace::server::session
