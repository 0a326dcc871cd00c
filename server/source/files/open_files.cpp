#include "server/source/files/open_files.h"

#include <sys/resource.h>

#include <algorithm>

namespace headrace::server::source {

std::size_t open_files_limit() {
  constexpr std::size_t kLeast = 4, kMost = std::size_t{1} << 18;
  rlimit now{};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0) return kLeast;
  return std::clamp<std::size_t>(now.rlim_cur / 4, kLeast, kMost);
}

Attempt<OpenFiles::Fd> OpenFiles::get(std::size_t file,
                                      const std::function<Attempt<ring::UniqueFd>()>& open) {
  const auto held = [&]() -> Fd {
    if (!is_open_[file]) return nullptr;
    open_.splice(open_.begin(), open_, entries_[file]);
    return open_.front().fd;
  };
  {
    const std::scoped_lock lock(mutex_);
    if (Fd fd = held()) return fd;
  }
  // Without the lock: a slow disk delays only the callers that need this file.
  auto fd = open();
  if (!fd) return tl::make_unexpected(std::move(fd.error()));
  const auto fresh = std::make_shared<const ring::UniqueFd>(std::move(*fd));
  const std::scoped_lock lock(mutex_);
  if (Fd other = held()) return other;
  if (open_.size() >= most_) {
    is_open_[open_.back().file] = false;
    open_.pop_back();
  }
  open_.push_front({file, fresh});
  entries_[file] = open_.begin();
  is_open_[file] = true;
  return fresh;
}

}  // namespace headrace::server::source
