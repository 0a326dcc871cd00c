#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "server/transform/kernels/prefetch.h"
#include "tests/bench/limits/loop.h"

namespace headrace::bench {
namespace {

constexpr std::size_t kMnistRow = 28UL * 28, kMnistBatch = 300, kMnistCount = 60'000;
constexpr std::size_t kSide = 32, kPlane = kSide * kSide, kCifarRow = 3 * kPlane;
constexpr std::size_t kCifarBatch = 768, kCifarCount = 50'000;
constexpr int kPadding = 4;
constexpr std::size_t kSlots = 8;  // slots of a ring, written in turn
constexpr std::size_t kCifarFloats = kCifarRow * 4;
constexpr std::size_t kPairBytes = 3UL * (48 * 48 + 192 * 192), kPairFloats = kPairBytes * 4;

std::vector<std::uint8_t> random_bytes(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  std::mt19937 random(1);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::uint8_t>(random()); });
  return bytes;
}

std::vector<std::uint32_t> shuffled(std::size_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937(2));
  return order;
}

// The clones are as fast as a program that is compiled for this machine.
#define FOR_EACH_MACHINE __attribute__((target_clones("avx512f", "avx2", "default")))

FOR_EACH_MACHINE void normalize(const std::uint8_t* in, std::size_t count, float scale, float shift,
                                float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]) * scale + shift;
}

/// A dataset of rows, visited in a shuffled order, and their destination: `kSlots` batches.
class Gathering {
 public:
  Gathering(std::size_t row, std::size_t count, std::size_t batch, std::size_t out)
      : row_(row),
        out_(out),
        in_(random_bytes(row * count)),
        order_(shuffled(count)),
        ring_(out * batch * kSlots) {}

  /// Prefetches later rows, as the server does, because rows are scattered.
  const std::uint8_t* next_in() {
    server::transform::prefetch({at(sample_ + 6), row_});
    return at(sample_++);
  }
  std::uint8_t* next_out() {
    if (at_ == ring_.size()) at_ = 0;
    return ring_.data() + std::exchange(at_, at_ + out_);
  }

 private:
  [[nodiscard]] const std::uint8_t* at(std::size_t sample) const {
    return in_.data() + row_ * order_[sample % order_.size()];
  }

  std::size_t row_, out_;
  std::vector<std::uint8_t> in_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint8_t> ring_;
  std::size_t sample_ = 0, at_ = 0;
};

/// random_crop 32 with padding 4, a horizontal flip, normalize, planes of float32.
void crop_flip_normalize(const std::uint8_t* in, std::uint32_t drawn, float* out) {
  const int down = static_cast<int>(drawn % 9) - kPadding, right = static_cast<int>(drawn / 9 % 9) - kPadding;
  const bool flip = (drawn >> 16 & 1) != 0;
  const std::size_t from = static_cast<std::size_t>(std::max(0, right)),
                    to = static_cast<std::size_t>(std::max(0, -right));
  const std::size_t width = kSide - from - to;
  std::array<std::uint8_t, kPlane> plane;
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t y = 0; y < kSide; ++y) {
      std::uint8_t* row = plane.data() + y * kSide;
      const int source = static_cast<int>(y) + down;
      std::memset(row, 0, kSide);
      if (source < 0 || source >= static_cast<int>(kSide)) continue;
      std::memcpy(row + to, in + c * kPlane + static_cast<std::size_t>(source) * kSide + from, width);
      if (flip) std::reverse(row, row + kSide);
    }
    normalize(plane.data(), kPlane, 0.016F, -2.0F, out + c * kPlane);
  }
}

Loop copies(const std::string& name, std::size_t bytes) {
  auto data = std::make_shared<Gathering>(bytes, (256UL << 20) / bytes, 64, bytes);
  return {name, [data, bytes](std::size_t samples) {
            for (std::size_t i = 0; i < samples; ++i) std::memcpy(data->next_out(), data->next_in(), bytes);
          }};
}

}  // namespace

std::vector<Loop> array_loops() {
  auto bytes = std::make_shared<Gathering>(kMnistRow, kMnistCount, kMnistBatch, kMnistRow);
  auto floats = std::make_shared<Gathering>(kMnistRow, kMnistCount, kMnistBatch, kMnistRow * sizeof(float));
  auto cifar = std::make_shared<Gathering>(kCifarRow, kCifarCount, kCifarBatch, kCifarFloats);
  std::vector<Loop> loops;
  loops.push_back({"w1-u8 gather", [bytes](std::size_t samples) {
                     for (std::size_t i = 0; i < samples; ++i)
                       std::memcpy(bytes->next_out(), bytes->next_in(), kMnistRow);
                   }});
  loops.push_back({"w1-f32 gather, normalize", [floats](std::size_t samples) {
                     for (std::size_t i = 0; i < samples; ++i)
                       normalize(floats->next_in(), kMnistRow, 0.01273F, -0.4242F,
                                 reinterpret_cast<float*>(floats->next_out()));
                   }});
  loops.push_back(
      {"w2-f32 crop, flip, normalize", [cifar, random = std::mt19937(3)](std::size_t samples) mutable {
         for (std::size_t i = 0; i < samples; ++i)
           crop_flip_normalize(cifar->next_in(), static_cast<std::uint32_t>(random()),
                               reinterpret_cast<float*>(cifar->next_out()));
       }});
  loops.push_back(copies("w2-f32 memcpy of 12 KiB", kCifarFloats));
  loops.push_back(copies("w4-f32 memcpy of 459 KiB", kPairFloats));
  loops.push_back(copies("w4-u8 memcpy of 115 KiB", kPairBytes));
  return loops;
}

}  // namespace headrace::bench
