// Combines the schemas of codecs into one JSON Schema document.
#pragma once

#include "server/described/codec.h"

namespace headrace::server::described {

/// `root` with each named() schema moved to `definitions` once and replaced by a reference.
Schema with_definitions(const Schema& root);

}  // namespace headrace::server::described
