#include "server/session/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

#include "server/log/log.h"

namespace headrace::server::session {

void raise_descriptor_limit() {
  rlimit now{};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(now.rlim_max, kMostDescriptors);
  if (now.rlim_cur >= wanted) return;
  now.rlim_cur = wanted;
  if (::setrlimit(RLIMIT_NOFILE, &now) != 0) log::debug("RLIMIT_NOFILE stays as it is");
}

int descriptor_limit() {
  rlimit now{};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0) return static_cast<int>(kMostDescriptors);
  return static_cast<int>(std::min<rlim_t>(now.rlim_cur, kMostDescriptors));
}

int reserved_descriptors() {
  return std::clamp(descriptor_limit() / 4, 16, 256);
}

bool in_reserve(int fd) {
  return fd >= descriptor_limit() - reserved_descriptors();
}

}  // namespace headrace::server::session
