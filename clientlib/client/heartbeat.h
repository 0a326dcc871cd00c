// The client's heartbeat. One thread per process writes each attachment's heartbeat twice a second, and
// notices when the server closes a session. When the process is stopped (SIGSTOP), the heartbeat stops too,
// so the server can detect it.
//
// Thread safety: any thread. A forked child does not inherit the thread; its first attachment starts a new
// one.
#pragma once

#include <memory>

#include "clientlib/client/attachment.h"

namespace headrace::client {

/// Writes the attachment's heartbeat until it is destroyed.
void keep_alive(const std::shared_ptr<Attachment>& attachment);

}  // namespace headrace::client
