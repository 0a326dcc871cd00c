// Steps that anybody may have written: refused, or made without a byte beside their buffers. Meant for
// AddressSanitizer, too: the host twin's shared memory is an allocation of its own.
#include <gtest/gtest.h>

#include <cstring>

#include "headrace/gpu_transform.h"
#include "tests/random_steps.h"

namespace headrace::gpu {
namespace {

using pixels::RowSteps;
using testing::StepMaker;

constexpr std::size_t kGuard = 64;

/// Numbers at which something may overflow, or small ones.
std::int32_t odd_number(StepMaker& maker) {
  constexpr std::int32_t kOdd[] = {0,         1,
                                   -1,        2,
                                   7,         16,
                                   31,        255,
                                   16'384,    16'385,
                                   65'535,    65'536,
                                   1 << 20,   1 << 30,
                                   INT32_MAX, INT32_MAX - 1,
                                   INT32_MIN, INT32_MIN + 1,
                                   -(1 << 20)};
  return maker.coin() ? maker.between(-30, 60)
                      : kOdd[static_cast<std::size_t>(maker.between(0, std::size(kOdd) - 1))];
}

void spoil(RowSteps& steps, PictureAt& picture, StepMaker& maker) {
  std::int32_t* const numbers[] = {&steps.crop.left,     &steps.crop.top,      &steps.crop.width,
                                   &steps.crop.height,   &steps.resized_width, &steps.resized_height,
                                   &steps.window.left,   &steps.window.top,    &steps.window.width,
                                   &steps.window.height, &picture.height,      &picture.width};
  for (int changes = maker.between(0, 2); changes > 0; --changes)
    *numbers[static_cast<std::size_t>(maker.between(0, std::size(numbers) - 1))] = odd_number(maker);
  if (maker.between(0, 3) != 0) return;
  // Any byte of all.
  auto* const bytes = reinterpret_cast<std::uint8_t*>(&steps);
  bytes[maker.bits() % sizeof steps] = static_cast<std::uint8_t>(maker.bits());
  if (maker.between(0, 3) == 0) picture.offset = maker.bits() % 4000;
}

TEST(HostileSteps, NeverReachBeyondTheirBuffers) {
  StepMaker maker(3);
  int refused = 0, made = 0;
  for (int round = 0; round < 20'000; ++round) {
    TransformOutput output{.height = maker.between(1, 24), .width = maker.between(1, 40)};
    output.channels = maker.coin() ? 3 : 1;
    output.dtype = maker.coin() ? DType::kUInt8 : DType::kFloat16;
    if (maker.coin()) output.layout = pixels::PixelLayout::kNhwc;
    auto batch = testing::random_batch(maker, output, 1, 60, 50, maker.coin());
    spoil(batch.steps[0], batch.pictures[0], maker);
    auto transform = or_throw(DeviceTransform::open("host", output));
    std::vector<std::byte> memory(2 * kGuard + output.row_bytes(), std::byte{0x5A});
    const auto done = transform.launch(batch.view(batch.pixels.data()), batch.steps, memory.data() + kGuard,
                                       output.row_bytes(), 0);
    (done ? made : refused) += 1;
    if (!done) {
      ASSERT_EQ(done.error().code, ErrorCode::kInvalidArgument);
    }
    for (std::size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(memory[i], std::byte{0x5A}) << "round " << round;
      ASSERT_EQ(memory[memory.size() - 1 - i], std::byte{0x5A}) << "round " << round;
    }
  }
  EXPECT_GT(refused, 4000);
  EXPECT_GT(made, 4000);
}

}  // namespace
}  // namespace headrace::gpu
