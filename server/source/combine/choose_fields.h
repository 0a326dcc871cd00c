// A source of which only some fields are used.
#pragma once

#include <memory>

#include "server/source/field_set.h"
#include "server/source/source.h"

namespace headrace::server::source {

/// A view of `source` whose read() leaves the items of other fields empty, and does not read them if the
/// source supports that. Field indices and everything else are unchanged. Returns `source` if all fields are
/// chosen.
std::shared_ptr<const Source> choose_fields(std::shared_ptr<const Source> source, FieldSet chosen);

}  // namespace headrace::server::source
