// A source that reads through another one: tests override what is to go wrong.
#pragma once

#include "server/source/combine/forwarding.h"

namespace headrace::testing {

using server::source::ForwardingSource;

}  // namespace headrace::testing
