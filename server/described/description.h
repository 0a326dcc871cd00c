// For headers that declare described structs; the files that describe them include described.h.
#pragma once

namespace headrace::server::described {

template <class S>
struct Description;

}  // namespace headrace::server::described
