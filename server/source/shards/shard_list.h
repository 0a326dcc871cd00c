// Which files a set of shards is made of.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

/// What a pattern with ranges of numbers in braces means, as a shell expands it; itself if it has none.
/// `shown` is what messages call it. kDatasetInvalid: a range that runs backwards, more than a million.
Result<std::vector<std::string>> expand_ranges(const std::string& pattern, const std::string& shown);

/// Each path is a tar file, a folder (its *.tar, sorted by name), or a pattern with ranges of numbers in
/// braces, as a shell expands them: "train-{000000..000146}.tar". In the order given. kDatasetInvalid:
/// nothing there, a folder without tar files (with what it has instead), a range that runs backwards, more
/// than a million shards, the same shard twice. Whether files exist is seen when they are opened.
Result<std::vector<std::filesystem::path>> list_shards(const std::vector<std::string>& paths);

}  // namespace headrace::server::source
