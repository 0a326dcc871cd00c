// The error that std::bad_alloc becomes where a call of the client library ends.
#pragma once

#include <new>
#include <string>

#include "headrace/error.h"

namespace headrace::client {

/// `doing`: "to attach".
inline tl::unexpected<Error> no_memory(const std::string& doing) {
  return fail(ErrorCode::kNotEnoughMemory, "no memory is left " + doing + ": free some, then call again");
}

}  // namespace headrace::client
