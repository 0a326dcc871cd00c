// One request and one reply over the control socket. Each exchange has its own ZeroMQ context, so no state
// survives between calls, across a fork or after a server's death.
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
  std::vector<std::byte> binary;  ///< the second frame of a `sample` reply
};

/// kPermissionDenied: the directory, or the process that answers, belongs to a user that is not trusted.
/// kServerUnreachable: the deadline passed; the message says whether the socket, a listening server or the
/// answer was missing. kServerLost: the server exited before it answered. Any other error is the server's
/// own.
Result<Answer> exchange(const Address& server, std::string op, nlohmann::json body, const Deadline& deadline,
                        const Interrupt& interrupt = {});

/// Compares versions with the server. If there is no server yet, retries until one appears or the deadline
/// passes. kVersionMismatch names both versions. kPermissionDenied: as for exchange(), or the server does not
/// admit this user.
Result<wire::HelloReply> say_hello(const Address& server, const Deadline& deadline,
                                   const Interrupt& interrupt = {});

}  // namespace headrace::client
