// Connections to the HTTP port, from their first byte to their last. civetweb gives each a thread, even
// before it has sent a request, and while it sends a body or reads the reply slowly. If many do, the oldest
// are ended, so that /healthz is soon answered.
//
// Thread safety: any thread.
#pragma once

#include <string>

namespace headrace::server::metrics {

/// Adds a connection from an IP network. If more than 16 have sent no request, ends the oldest of them.
void note_accepted(int socket) noexcept;
/// Ends the oldest connections if more than 8 have been busy for over a second since their request. Call it
/// every second or more often.
void end_slow();
/// The connection from this address has sent the head of its request.
void note_request(const std::string& address, int port);
/// It is about to be closed, or has an endless reply, whose number is limited elsewhere.
void forget_connection(const std::string& address, int port);

}  // namespace headrace::server::metrics
