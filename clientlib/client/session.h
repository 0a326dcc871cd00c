// Opens a session: the request, its token, then the descriptors and the attachment. Makes one attempt;
// callers retry.
#pragma once

#include <memory>
#include <string>

#include "clientlib/client/attachment.h"
#include "clientlib/client/exchange.h"
#include "clientlib/wire/protocol.h"

namespace headrace::client {

struct Session {
  StreamInfo stream;
  wire::AttachReply reply;
  std::shared_ptr<Attachment> attachment;  ///< its heartbeat has begun
};

Result<Session> open_session(const Address& server, const wire::OpenRequest& request,
                             ring::RingReader::Slots slots, const Deadline& deadline,
                             const Interrupt& interrupt);

}  // namespace headrace::client
