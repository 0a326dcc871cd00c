// Limits what an attacker who runs code in the server can do: the process gains no privileges, keeps only the
// capabilities that it needs to read data, and makes only the system calls of a server. SECURITY.md has the
// threat model.
#pragma once

#include "headrace/error.h"

namespace headrace::server::sandbox {

/// Whether this build can filter system calls. False with sanitizers, whose run time makes calls of its own.
bool can_filter();

/// Affects the calling thread and the threads that it creates later, so call it before the first of them.
/// Executed programs gain no privileges (PR_SET_NO_NEW_PRIVS). As root, the server keeps three capabilities:
/// to read and to write files of other users, and to read the memory of a bridge (session/bridge.h).
Result<void> drop_privileges();

/// Refuses, with EPERM, each system call that a server never makes: executing programs, creating processes,
/// tracing or signalling others, loading kernel modules, making memory executable that was written to, and
/// all others that are not listed in allowed_calls.h. Calls that are newer than libseccomp get ENOSYS, so
/// that C libraries fall back to older ones. Applies to all threads of the process and cannot be undone.
/// kEnvironment: the kernel has no seccomp, or another filter forbids it. Call it after drop_privileges().
Result<void> filter_calls();

/// Unblocks SIGSYS in the calling thread. A refused call of a thread that blocks it (libzmq's threads block
/// all signals) would kill the process.
void unblock_sigsys();

/// Logs a warning for each refused system call that was not logged before. Refused attempts to create a
/// process are not logged.
void log_refusals();

}  // namespace headrace::server::sandbox
