// The gpu library from the installed package, on its host twin.
#include <headrace/gpu.h>
#include <headrace/gpu_transform.h>

#include <cstring>
#include <vector>

namespace {

/// The middle of a picture, as bytes.
bool cuts_a_picture() {
  namespace gpu = headrace::gpu;
  auto transform = gpu::DeviceTransform::open(
      "host", {.height = 1, .width = 2, .channels = 1, .dtype = headrace::DType::kUInt8});
  const std::vector<std::byte> picture{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  const gpu::PictureAt at{.offset = 0, .height = 1, .width = 4};
  headrace::pixels::RowSteps steps;
  steps.crop = {1, 0, 2, 1};
  steps.resized_width = 2;
  steps.resized_height = 1;
  steps.window = {0, 0, 2, 1};
  std::vector<std::byte> out(2);
  return transform &&
         transform->launch({picture.data(), 4, {&at, 1}, 1}, {&steps, 1}, out.data(), 2, 0).has_value() &&
         out[0] == picture[1] && out[1] == picture[2];
}

}  // namespace

int main() {
  auto engine = headrace::gpu::CopyEngine::open({.device = "host"});
  if (!engine) return 1;
  const std::vector<std::byte> from(4096, std::byte{7});
  const auto to = (*engine)->allocate(from.size());
  const headrace::gpu::Transfer transfer{from.data(), to->data(), from.size()};
  const auto copy = (*engine)->copy({&transfer, 1}, nullptr);
  return copy && copy->wait() && std::memcmp(from.data(), to->data(), from.size()) == 0 && cuts_a_picture()
             ? 0
             : 1;
}
