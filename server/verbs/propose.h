// `headrace check DATASET`: proposes a configuration.
#pragma once

#include <string>

namespace headrace::server::verbs {

/// Handles a dataset instead of a configuration: prints the proposed configuration on stdout, to be saved as
/// a file, and reports bad samples among a few on stderr. Returns the exit code.
int propose(const std::string& path);

}  // namespace headrace::server::verbs
