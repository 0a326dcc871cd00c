// LMDB trusts the pages of its file: a damaged page makes it read outside its map, or abort.
#pragma once

#include <filesystem>

#include "headrace/error.h"

namespace headrace::server::store {

/// Walks the whole tree of a database in a child process: all keys and the locations of their values, but not
/// the values. kDatasetInvalid if the tree is damaged; errors that LMDB itself reports are left to the next
/// caller that opens the database. A database that is written meanwhile is checked again, a few times.
/// kEnvironment: the check was killed, or a blocked signal of stop_signals() is pending. Takes about 70 ns
/// per sample.
Result<void> check_tree(const std::filesystem::path& folder);

}  // namespace headrace::server::store
