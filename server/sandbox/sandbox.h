// Limits what an attacker can do who runs code in the server: it gains no privileges, keeps no capability
// that reading data does not need, and makes only the system calls of a server. SECURITY.md has the threat
// model.
#pragma once

#include "headrace/error.h"

namespace headrace::server::sandbox {

/// Whether this build can filter system calls. False with sanitizers, whose run time makes calls of its own.
bool can_filter();

/// For the calling thread and those that it creates: call it before any exists. Executing a program never
/// gives privileges (PR_SET_NO_NEW_PRIVS). root keeps three capabilities: to read and write files of other
/// users, and to read the memory of a bridge (session/bridge.h).
Result<void> drop_privileges();

/// Refuses, with EPERM, each system call that a server never makes: executing programs, creating processes,
/// tracing others, loading kernel modules, mapping memory that is both writable and executable, and all
/// others that are not listed in allowed_calls.h. Calls that are newer than libseccomp get ENOSYS, so that C
/// libraries fall back to older ones. Applies to all threads of the process and cannot be undone.
/// kEnvironment: the kernel has no seccomp, or another filter forbids it. Call it after drop_privileges().
Result<void> filter_calls();

/// A thread that blocks SIGSYS, as libzmq's do, would end the process with its first refused call.
void unblock_refusals();

/// Logs a warning for each system call that was refused for the first time since the last call.
void log_refusals();

}  // namespace headrace::server::sandbox
