// One request, one reply over the control socket. Each exchange has its own short-lived ZeroMQ context:
// nothing lingers between calls, over a fork or after a server's death.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "clientlib/client/address.h"
#include "clientlib/client/deadline.h"
#include "clientlib/wire/protocol.h"
#include "headrace/error.h"

namespace headrace::client {

struct Answer {
  nlohmann::json body;
  std::vector<std::byte> binary;  ///< of `sample`
};

/// kPermissionDenied: the directory, or the process that answers, is of a user that is not trusted.
/// kServerUnreachable says in which step the time ran out: no socket, nobody listening, or no answer.
/// kServerLost: it died under way. Everything else is the server's own error.
Result<Answer> exchange(const Address& server, std::string op, nlohmann::json body, const Deadline& deadline,
                        const Interrupt& interrupt = {});

/// Versions on both sides: kVersionMismatch names both. Tries again until the deadline for a server to
/// appear. kPermissionDenied: as exchange(), or the server does not admit this user.
Result<wire::HelloReply> say_hello(const Address& server, const Deadline& deadline,
                                   const Interrupt& interrupt = {});

}  // namespace headrace::client
