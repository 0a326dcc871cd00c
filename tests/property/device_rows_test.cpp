// The kernel's code, run by the CPU backend, against the server's own path: thousands of chains and images,
// and RowSteps with random bytes. Also for AddressSanitizer: source images and rows are separate allocations.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "clientlib/gpu/host/host_rows.h"
#include "server/transform/ops/ops.h"
#include "tests/device_chains.h"

namespace headrace::server::transform::testing {
namespace {

constexpr std::size_t kGuard = 64;

/// Rows with guard bytes before and after them, which must not change. `shift`: for every alignment.
std::vector<std::byte> made_by_cpu(const ChainBatch& batch, std::size_t shift) {
  gpu::RowJob job = batch.job;
  const std::size_t begin = kGuard + shift * static_cast<std::size_t>(job.element_bytes);
  std::vector<std::byte> memory(begin + batch.expected.size() + kGuard, std::byte{0xA5});
  job.out = reinterpret_cast<std::uint8_t*>(memory.data());
  job.image_to = begin;
  gpu::run_on_host(job);
  for (std::size_t i = 0; i < memory.size(); ++i)
    if (i < begin || i >= begin + batch.expected.size()) {
      EXPECT_EQ(memory[i], std::byte{0xA5}) << "at " << i;
    }
  return {memory.begin() + static_cast<std::ptrdiff_t>(begin),
          memory.end() - static_cast<std::ptrdiff_t>(kGuard)};
}

std::string difference(const ChainBatch& batch, const std::vector<std::byte>& made) {
  const std::size_t row_bytes = batch.expected.size() / static_cast<std::size_t>(batch.job.rows);
  for (std::size_t i = 0; i < made.size(); ++i)
    if (made[i] != batch.expected[i])
      return "row " + std::to_string(i / row_bytes) + ", byte " + std::to_string(i % row_bytes) + " of " +
             std::to_string(row_bytes) + ": " + std::to_string(static_cast<int>(made[i])) + ", not " +
             std::to_string(static_cast<int>(batch.expected[i]));
  return {};
}

TEST(DeviceRows, AreTheServersForRandomChains) {
  ChainMaker maker(17);
  int same = 0;
  std::array<int, 9> with_moves{}, with_contrasts{};
  std::array<int, 5> converted{};
  for (int round = 0; round < 3000; ++round) {
    const PlanConfig config = maker.chain();
    const auto batch = make_batch(config, maker, 3, 400, 300);
    if (!batch && batch.error().code == ErrorCode::kBadSample) continue;  // too small for its crop
    ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
    const gpu::RowJob& job = batch->job;
    ASSERT_EQ(difference(*batch, made_by_cpu(*batch, maker.random()() % 16)), "")
        << "round " << round << ": " << job.out_width << " x " << job.out_height << ", moves "
        << job.move_count << ", contrasts " << job.contrasts << ", channels " << job.channels << " to "
        << job.out_channels << ", elements of " << job.element_bytes;
    ++same;
    ++with_moves[static_cast<std::size_t>(job.move_count)];
    ++with_contrasts[static_cast<std::size_t>(job.contrasts)];
    ++converted[static_cast<std::size_t>(job.conversion)];
  }
  EXPECT_GT(same, 2800);
  EXPECT_GT(with_moves[1] + with_moves[2] + with_moves[3], 1000);
  EXPECT_GT(with_contrasts[1] + with_contrasts[2], 300);
  for (std::size_t i = 0; i < converted.size(); ++i) EXPECT_GT(converted[i], 5) << "conversion " << i;
}

TEST(DeviceRows, AreTheServersForImageNetsChain) {
  ChainMaker maker(5);
  for (const DType dtype : {DType::kUInt8, DType::kFloat16, DType::kFloat32}) {
    PlanConfig config{.transforms = {make_op("random_resized_crop", {{"size", {224, 224}}}),
                                     make_op("random_horizontal_flip"),
                                     make_op("color_jitter", {{"brightness", {0.6, 1.4}},
                                                              {"contrast", {0.6, 1.4}},
                                                              {"saturation", {0.6, 1.4}},
                                                              {"hue", {-0.1, 0.1}}})}};
    config.output.dtype = dtype;
    if (dtype != DType::kUInt8)
      config.transforms.emplace_back(
          make_op("normalize", {{"mean", {0.485, 0.456, 0.406}}, {"std", {0.229, 0.224, 0.225}}}));
    const auto batch = make_batch(config, maker, 20, 600, 500);
    ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
    ASSERT_EQ(difference(*batch, made_by_cpu(*batch, 0)), "");
  }
}

TEST(DeviceRows, NeverReachBeyondTheirBuffers) {
  ChainMaker maker(3);
  int hostile = 0;
  for (int round = 0; round < 3000; ++round) {
    auto batch = make_batch(maker.chain(), maker, 2, 60, 50);
    if (!batch) continue;
    const std::size_t step = batch->job.picture_step, offset = batch->job.steps_offset;
    for (std::size_t row = 0; row < 2; ++row) {
      std::byte* const steps = batch->pictures.data() + row * step + offset;
      if (maker.coin()) {  // all of it, else a few bytes
        for (std::size_t i = 0; i < sizeof(RowSteps); ++i)
          steps[i] = static_cast<std::byte>(maker.random()());
      } else {
        for (int i = 0; i < 4; ++i) steps[maker.random()() % sizeof(RowSteps)] = std::byte{0xFF};
      }
    }
    (void)made_by_cpu(*batch, maker.random()() % 16);
    ASSERT_FALSE(HasFailure()) << "round " << round;
    ++hostile;
  }
  EXPECT_GT(hostile, 2500);
}

}  // namespace
}  // namespace headrace::server::transform::testing
