// Files that are read again and again stay open, up to a number.
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

/// Thread safety: any number of workers. A file stays open while somebody holds what get() gave, also when it
/// had to make room: so up to `most` and one per worker are open.
class OpenFiles {
 public:
  using Fd = std::shared_ptr<const ring::UniqueFd>;

  OpenFiles(std::size_t files, std::size_t most) : places_(files), most_(most) {}

  /// The open file, which `open` opens if it is not. Allocates nothing if it is.
  Attempt<Fd> get(std::size_t file, const std::function<Attempt<ring::UniqueFd>()>& open);

 private:
  struct Entry {
    std::size_t file;
    Fd fd;
  };

  std::mutex mutex_;
  std::list<Entry> open_;                           // the last used first
  std::vector<std::list<Entry>::iterator> places_;  // meaningful where is_open_
  std::vector<bool> is_open_ = std::vector<bool>(places_.size());
  const std::size_t most_;
};

}  // namespace headrace::server::source
