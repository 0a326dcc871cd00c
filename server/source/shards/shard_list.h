// Finds the files of a set of shards.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

/// Expands ranges of numbers in braces, as a shell does; a pattern without ranges is returned unchanged.
/// `shown`: the pattern in messages. kDatasetInvalid: a range that runs backwards, more than a million
/// results.
Result<std::vector<std::string>> expand_ranges(const std::string& pattern, const std::string& shown);

/// Each path is a tar file, a folder (its *.tar, sorted by name), or a pattern with ranges of numbers in
/// braces, as a shell expands them: "train-{000000..000146}.tar". In the order given. kDatasetInvalid:
/// nothing there, a folder without tar files (names what it has instead), a range that runs backwards, more
/// than a million shards, the same shard twice. Opening the files shows whether they exist.
Result<std::vector<std::filesystem::path>> list_shards(const std::vector<std::string>& paths);

}  // namespace headrace::server::source
