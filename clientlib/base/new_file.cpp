#include "clientlib/base/new_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace headrace {

tl::expected<NewFile, int> NewFile::create(int directory, std::string name, mode_t mode) {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) std::abort();
  char word[24];
  std::snprintf(word, sizeof word, ".%016llx", static_cast<unsigned long long>(random));
  std::string aside = name + word + std::string(kSuffix);
  UniqueFd fd(::openat(directory, aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd) return tl::make_unexpected(errno);
  return NewFile(directory, std::move(name), std::move(aside), std::move(fd));
}

NewFile::NewFile(NewFile&& other) noexcept
    : directory_(other.directory_),
      name_(std::move(other.name_)),
      aside_(std::exchange(other.aside_, {})),
      fd_(std::move(other.fd_)) {}

NewFile& NewFile::operator=(NewFile&& other) noexcept {
  std::swap(directory_, other.directory_);
  name_.swap(other.name_);
  aside_.swap(other.aside_);
  std::swap(fd_, other.fd_);
  return *this;
}

NewFile::~NewFile() {
  if (!aside_.empty()) ::unlinkat(directory_, aside_.c_str(), 0);
}

int NewFile::write(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  for (std::size_t done = 0; done < size;) {
    const ssize_t put = ::write(fd_.get(), bytes + done, size - done);
    if (put < 0 && errno != EINTR) return errno;
    if (put > 0) done += static_cast<std::size_t>(put);
  }
  return 0;
}

int NewFile::replace() {
  if (::renameat(directory_, aside_.c_str(), directory_, name_.c_str()) != 0) return errno;
  aside_.clear();
  return 0;
}

int NewFile::add() {
  return ::linkat(directory_, aside_.c_str(), directory_, name_.c_str(), 0) == 0 ? 0 : errno;
}

}  // namespace headrace
