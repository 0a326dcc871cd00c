// The client's sign of life: one thread per process beats each attachment's heartbeat twice a second and
// notices when the server closes a session. It stands still with the process (SIGSTOP), which is how the
// server tells.
//
// Thread safety: any thread. A forked child has no pulse of its parent's; its own begins with its first
// attachment.
#pragma once

#include <memory>

#include "clientlib/client/attachment.h"

namespace headrace::client {

/// Beats for the attachment until it is destroyed.
void keep_alive(const std::shared_ptr<Attachment>& attachment);

}  // namespace headrace::client
