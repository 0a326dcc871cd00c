// The reason why a batch did not come in time, as far as the server knows it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "clientlib/client/address.h"
#include "clientlib/client/deadline.h"
#include "headrace/cursor.h"

namespace headrace::client {

/// A sentence that says which other client delays batch `due` of `stream`, an entry of the server's `stats`.
/// Empty if no other client does. `self` names the client that waits. Throws json::exception if the server
/// has another version.
std::string reason_in_stats(const nlohmann::json& stream, const Cursor& due,
                            std::string_view self = "This client");

/// A sentence for an error: the clients that the stream waits for, or other likely reasons. Asks the server,
/// which takes at most a third of a second, unless the wait for batch `due` was shorter than that would take.
std::string reason_for_delay(const Address& server, const std::string& stream, const Cursor& due,
                             const Deadline& waited, const Interrupt& interrupt);

}  // namespace headrace::client
