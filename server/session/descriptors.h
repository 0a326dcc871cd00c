// Descriptors, when they run short. Files of the dataset and the sessions that exist go before new
// connections: those are refused while only the reserve is left.
//
// libzmq leaves no choice of place: it ends the process when accept(2) on an ipc socket gives EMFILE, knows
// no bound on connections, and takes no socket that somebody else accepted. So descriptors.cpp defines
// accept(2) and accept4(2) for the whole process. They close a connection at once (ECONNABORTED, which every
// caller must expect) if its descriptor lies in the reserve. Descriptors are given out lowest first: a number
// tells how many are in use, exactly and without a count.
//
// Thread safety: any thread.
#pragma once

namespace headrace::server::session {

/// Raises the soft RLIMIT_NOFILE to the hard one, to a million at most.
void raise_descriptor_limit();

/// A quarter of RLIMIT_NOFILE, 16 to 256: a worker needs one at a time, a session that is being made five.
int reserved_descriptors();

/// Whether so few are left that `fd`, the last one given out, came from the reserve.
bool in_reserve(int fd);

}  // namespace headrace::server::session
