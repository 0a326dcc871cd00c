// From a request to an attachment: open, token, descriptors. One attempt; who retries is said where it
// is called.
#pragma once

#include <memory>
#include <string>

#include "clientlib/client/attachment.h"
#include "clientlib/client/exchange.h"
#include "clientlib/wire/protocol.h"

namespace headrace::client {

struct Session {
  wire::OpenReply reply;
  std::shared_ptr<Attachment> attachment;  ///< kept alive by the pulse
};

Result<Session> open_session(const Address& server, const wire::OpenRequest& request,
                             ring::RingReader::Slots slots, const Deadline& deadline,
                             const Interrupt& interrupt);

}  // namespace headrace::client
