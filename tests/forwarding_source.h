// A source that forwards to another one: tests override the calls that should fail.
#pragma once

#include "server/source/combine/forwarding.h"

namespace headrace::testing {

using server::source::ForwardingSource;

}  // namespace headrace::testing
