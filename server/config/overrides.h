// Values from flags and environment variables, put over the file's.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/config/document.h"

namespace headrace::server::config {

/// The overrides among HEADRACE_ variables, ordered by name: those with "__" behind the prefix, or that begin
/// like a top-level key (HEADRACE_SERVER_...), so that a mistyped one is told and not ignored. Others
/// (HEADRACE_ADDRESS, HEADRACE_LOG, ...) belong to somebody else. Names are matched to keys without regard to
/// case and to - against _.
void apply_environment(const Environment& environment, Document& document);

/// Dotted paths with the keys as they are written; list items by index ("transforms.0.resize.size").
void apply_flags(std::span<const Override> flags, Document& document);

}  // namespace headrace::server::config
