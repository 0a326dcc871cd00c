// How values that several parts of a configuration have are written.
#pragma once

#include "server/described/described.h"

namespace headrace::server::config {

/// Of a source, a stream or a part.
described::Codec<std::string> name();
/// Of a field.
described::Codec<std::string> field();
described::Codec<std::vector<std::string>> fields();
described::Codec<std::uint64_t> seed();
described::Codec<std::uint32_t> count();
/// From 0 to 1.
described::Codec<double> fraction();

}  // namespace headrace::server::config
