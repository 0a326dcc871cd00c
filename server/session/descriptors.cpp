#include "server/session/descriptors.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>

#include "clientlib/ring/unique_fd.h"
#include "server/log/log.h"

namespace headrace::server::session {
namespace {

/// An attached client needs its session's socket, a pidfd and a doorbell.
constexpr int kDescriptorsPerClient = 3;

/// The number that the next descriptor would get; -1: there is none.
int next_descriptor() {
  return ring::UniqueFd(::eventfd(0, EFD_CLOEXEC)).get();
}

}  // namespace

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

Result<void> check_descriptors() {
  const int next = next_descriptor();
  if (next >= 0 && !in_reserve(next)) return {};
  return fail(
      ErrorCode::kEnvironment,
      fmt::format("no descriptor is left for clients: {} files may be open, of which {} are reserved; "
                  "raise the limit (ulimit -n), or configure fewer streams",
                  descriptor_limit(), reserved_descriptors()));
}

std::string short_of_descriptors(int clients) {
  const int room = (descriptor_limit() - reserved_descriptors() - next_descriptor()) / kDescriptorsPerClient;
  if (room >= clients) return {};
  return fmt::format(
      "the streams allow {} clients together (ring.max_clients), but the limit of {} open files leaves "
      "room for only about {} clients, and the server refuses further ones: raise the limit (ulimit -n)",
      clients, descriptor_limit(), std::max(room, 0));
}

bool in_reserve(int fd) {
  return fd >= descriptor_limit() - reserved_descriptors();
}

}  // namespace headrace::server::session
