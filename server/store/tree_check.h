// LMDB trusts the pages of its own file: a damaged one makes it read memory that is not there, or abort.
#pragma once

#include <filesystem>

#include "headrace/error.h"

namespace headrace::server::store {

/// Walks the whole tree of a database in a child process: all of its keys, and where their values lie, but
/// not the values. kDatasetInvalid if the tree is damaged; what LMDB itself reports is left to whoever opens
/// the database next. A database that is written meanwhile is checked again, a few times. kEnvironment: the
/// check was killed, or one of stop_signals(), blocked, tells this process to stop. Some 70 ns per sample.
Result<void> check_tree(const std::filesystem::path& folder);

}  // namespace headrace::server::store
