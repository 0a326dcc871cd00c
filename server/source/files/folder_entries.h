// Lists a folder, entry by entry.
#pragma once

#include <dirent.h>

#include <functional>
#include <string>

namespace headrace::server::source {

/// Calls `each` for every entry except "." and "..", in the file system's order, until it returns false.
/// `path`: relative to the directory `root_fd`; `folder_fd`: the folder's own. Returns errno, or 0.
int each_entry(int root_fd, const std::string& path,
               const std::function<bool(int folder_fd, const dirent& entry)>& each);

}  // namespace headrace::server::source
