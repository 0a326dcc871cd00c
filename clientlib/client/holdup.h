// Why a batch did not come in time, as far as the server can tell.
#pragma once

#include <string>

#include "clientlib/client/address.h"
#include "clientlib/client/deadline.h"
#include "headrace/cursor.h"

namespace headrace::client {

/// A sentence: which clients the stream waits for, or what else it may be. Asks the server, unless the wait
/// for `due` was so short that this would cost more than it did; takes a third of a second at most.
std::string what_is_waited_for(const Address& server, const std::string& stream, const Cursor& due,
                               const Deadline& waited, const Interrupt& interrupt);

}  // namespace headrace::client
