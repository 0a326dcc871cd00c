// The gpu library from the installed package, on its CPU backend.
#include <headrace/device_loader.h>
#include <headrace/gpu.h>

#include <cstring>
#include <vector>

int main() {
  auto engine = headrace::gpu::CopyEngine::open({.device = "host"});
  if (!engine) return 1;
  const std::vector<std::byte> from(4096, std::byte{7});
  const auto to = (*engine)->allocate(from.size());
  const headrace::gpu::Transfer transfer{from.data(), to->data(), from.size()};
  const auto copy = (*engine)->copy({&transfer, 1}, nullptr);
  return copy && copy->wait() && std::memcmp(from.data(), to->data(), from.size()) == 0 ? 0 : 1;
}
