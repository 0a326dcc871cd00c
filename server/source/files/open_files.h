// Keeps frequently read files open, up to a limit.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "server/source/files/file_reader.h"

namespace headrace::server::source {

/// A quarter of RLIMIT_NOFILE, at least 4: the clients' sockets and rings need descriptors, too.
std::size_t open_files_limit();

/// Thread safety: any number of workers. A file stays open while a caller holds get()'s result, even after it
/// was evicted: so up to `most` files plus one per worker are open.
class OpenFiles {
 public:
  using Fd = std::shared_ptr<const ring::UniqueFd>;

  OpenFiles(std::size_t files, std::size_t most) : entries_(files), most_(most) {}

  /// The file's descriptor; calls `open` if the file is not open. Allocates nothing if it is.
  Attempt<Fd> get(std::size_t file, const std::function<Attempt<ring::UniqueFd>()>& open);

 private:
  struct Entry {
    std::size_t file;
    Fd fd;
  };

  std::mutex mutex_;
  std::list<Entry> open_;                            // most recently used first
  std::vector<std::list<Entry>::iterator> entries_;  // valid where is_open_
  std::vector<bool> is_open_ = std::vector<bool>(entries_.size());
  const std::size_t most_;
};

}  // namespace headrace::server::source
