// From the schemas of codecs to one JSON Schema document.
#pragma once

#include "server/described/codec.h"

namespace headrace::server::described {

/// `root` with each named() schema in it replaced by a reference to `definitions`, where it stands once.
Schema with_definitions(const Schema& root);

}  // namespace headrace::server::described
