#pragma once

#include <cstdint>
#include <string>

#include "server/source/source.h"

namespace headrace::server::exec {

/// The sample's name for errors and the log. Its control bytes, line feeds too, are escaped: it could look
/// like a line of its own.
std::string shown_name(const source::Source& source, std::uint64_t index);

}  // namespace headrace::server::exec
