// Values from flags and environment variables, which override the file's.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/config/document.h"

namespace headrace::server::config {

/// Applies the overrides among HEADRACE_ variables, ordered by name: those with "__" after the prefix, or
/// with the first word of a top-level key (HEADRACE_SERVER_...), so that a mistyped one is reported and not
/// ignored. Others (HEADRACE_ADDRESS, HEADRACE_LOG, ...) are not overrides. Names match keys regardless of
/// case, and _ matches -.
void apply_environment(const Environment& environment, Document& document);

/// Dotted paths with the keys as they are written; list items by index ("transforms.0.resize.size").
void apply_flags(std::span<const Override> flags, Document& document);

}  // namespace headrace::server::config
