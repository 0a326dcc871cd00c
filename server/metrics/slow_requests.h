// Connections to the HTTP port that have not sent a request yet. civetweb gives each a thread, even before
// its first byte. If many wait, the oldest are ended, so that slow or silent ones cannot delay /healthz.
//
// Thread safety: any thread.
#pragma once

#include <string>

namespace headrace::server::metrics {

/// `socket` was accepted from an IP network. May end older connections.
void note_accepted(int socket) noexcept;
/// The connection from this address has sent its request, or is about to be closed.
void note_request(const std::string& address, int port);

}  // namespace headrace::server::metrics
