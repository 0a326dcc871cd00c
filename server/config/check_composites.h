// What must hold between sources that are made of each other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/config/document.h"
#include "server/config/sources.h"

namespace headrace::server::config {

/// Sources may be nested this deep.
inline constexpr int kDeepest = 16;

/// Adds to `problems`: names and parts that are not there, cycles, nesting beyond kDeepest, and splits whose
/// parts could share a sample because a source comes more than once in what is split. `sources`: those that
/// have no problem of their own.
void check_composites(const Document& document, const std::map<std::string, SourceConfig>& sources,
                      std::vector<Problem>& problems);

/// What a schema cannot say of one of them at `at`.
void check_composite(const Document& document, const Pointer& at, std::vector<Problem>& problems);

}  // namespace headrace::server::config
