#include "server/placement/apply.h"

#include <numaif.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "server/log/log.h"

namespace headrace::server::placement {
namespace {

constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);
/// CONFIG_NODES_SHIFT is 10 at most.
constexpr std::size_t kMostNodes = 1024;
using NodeMask = std::array<unsigned long, kMostNodes / kWordBits>;
/// The kernel reads one bit less than it is given (a bug that it has kept).
constexpr unsigned long kMaskBits = kMostNodes + 1;

struct Policy {
  int mode = MPOL_DEFAULT;
  NodeMask nodes{};
};

/// The calling thread's policy; false: the kernel does not report it, and errno says why.
bool get_policy(Policy& policy) {
  return ::get_mempolicy(&policy.mode, policy.nodes.data(), kMostNodes, nullptr, 0) == 0;
}

bool interleaved(Policy& policy) {
  return get_policy(policy) && policy.mode == MPOL_INTERLEAVE;
}

void tell_once(const char* call) {
  static std::once_flag told;
  const int error = errno;
  std::call_once(told, [&] {
    log::warn(
        "numa: {}: {}: memory stays on the node that first writes it. If a container forbids the call, allow "
        "it "
        "(Docker: --cap-add SYS_NICE; move_pages: a custom seccomp profile), or set `server.numa: off`",
        call, std::strerror(error));
  });
}

}  // namespace

void run_on(std::span<const int> cpus) {
  if (cpus.empty()) return;
  const auto most = static_cast<std::size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
  const std::size_t bytes = CPU_ALLOC_SIZE(most);
  cpu_set_t* const set = CPU_ALLOC(most);
  if (set == nullptr) return;
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  const bool done = ::sched_setaffinity(0, bytes, set) == 0;
  const int error = errno;
  CPU_FREE(set);
  if (done) return;
  static std::once_flag told;
  std::call_once(told, [error] {
    log::warn(
        "numa: sched_setaffinity: {}: workers run where the kernel puts them. `server.numa: off` asks "
        "for no more",
        std::strerror(error));
  });
}

InterleavedMemory::InterleavedMemory(std::span<const int> nodes) {
  if (nodes.empty()) return;
  Policy before;
  if (!get_policy(before)) {
    tell_once("get_mempolicy");
    return;
  }
  if (before.mode != MPOL_DEFAULT) {
    log::info("numa: memory follows the policy that this process was started with");
    return;
  }
  NodeMask mask{};
  for (const int node : nodes) {
    const auto bit = static_cast<std::size_t>(node);
    if (bit < kMostNodes) mask[bit / kWordBits] |= 1UL << bit % kWordBits;
  }
  in_effect_ = ::set_mempolicy(MPOL_INTERLEAVE, mask.data(), kMaskBits) == 0;
  if (!in_effect_) tell_once("set_mempolicy");
}

InterleavedMemory::~InterleavedMemory() {
  if (in_effect_) ::set_mempolicy(MPOL_DEFAULT, nullptr, 0);
}

void interleave_as_here(void* memory, std::size_t bytes) {
  Policy policy;
  if (!interleaved(policy)) return;
  if (::mbind(memory, bytes, MPOL_INTERLEAVE, policy.nodes.data(), kMaskBits, 0) != 0) tell_once("mbind");
}

bool huge_pages_would_lie_in_turn() {
  Policy policy;
  return !interleaved(policy) || ::move_pages(0, 0, nullptr, nullptr, nullptr, MPOL_MF_MOVE) == 0;
}

void interleave_huge_pages(void* memory, std::size_t bytes) {
  Policy policy;
  if (!interleaved(policy)) return;
  std::vector<int> nodes;
  for (std::size_t node = 0; node < kMostNodes; ++node)
    if (policy.nodes[node / kWordBits] >> node % kWordBits & 1) nodes.push_back(static_cast<int>(node));
  const std::size_t count = bytes / kHugePage;
  std::vector<void*> pages(count);
  std::vector<int> homes(count), status(count);
  for (std::size_t i = 0; i < count; ++i) {
    pages[i] = static_cast<std::byte*>(memory) + i * kHugePage;
    homes[i] = nodes[i % nodes.size()];
  }
  if (::move_pages(0, count, pages.data(), homes.data(), status.data(), MPOL_MF_MOVE) < 0)
    tell_once("move_pages");
}

}  // namespace headrace::server::placement
