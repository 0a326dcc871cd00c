// Which of many files are there, as the folders list them: to list a folder takes a fraction of asking for
// each of its files, on a network mount hundreds of times less.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace headrace::server::source {

/// The paths of rows 0 to count - 1, relative to the directory `root_fd` or absolute. Called by several
/// threads.
using PathOf = std::function<std::string_view(std::uint64_t row)>;

/// The rows, ascending, that are still to be looked at one by one: all but those that their folder lists as
/// regular files. So what is missing is among them, and also what a listing cannot tell: links, files of a
/// folder that cannot be listed, is not worth it for a few of its files or holds many times what is
/// wanted of it, names that the file system knows under another spelling. Memory, while it runs: 16 to 32
/// bytes per listed file.
std::vector<std::uint64_t> not_listed(int root_fd, std::uint64_t count, const PathOf& path);

}  // namespace headrace::server::source
