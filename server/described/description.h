// For headers of described structs: described.h is for the files that describe them.
#pragma once

namespace headrace::server::described {

template <class S>
struct Description;

}  // namespace headrace::server::described
