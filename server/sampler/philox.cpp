#include "server/sampler/philox.h"

namespace headrace::server::sampler {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;

constexpr std::uint32_t low(std::uint64_t v) {
  return static_cast<std::uint32_t>(v);
}
constexpr std::uint32_t high(std::uint64_t v) {
  return static_cast<std::uint32_t>(v >> 32);
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMultiplier0} * c[0];
    const std::uint64_t p1 = std::uint64_t{kMultiplier1} * c[2];
    c = {high(p1) ^ c[1] ^ k[0], low(p1), high(p0) ^ c[3] ^ k[1], low(p0)};
    k[0] += kWeyl0;
    k[1] += kWeyl1;
  }
  return c;
}

// Seed, epoch, stage and position have more bits than one counter holds: (seed, epoch, stage) becomes a
// subkey first.
Draws::Draws(std::uint64_t seed, std::uint64_t epoch, std::uint64_t position, std::uint32_t stage) {
  const auto sub = philox4x32({low(epoch), high(epoch), stage, 0}, {low(seed), high(seed)});
  key_ = {sub[0], sub[1]};
  counter_ = {low(position), high(position), 0, sub[2]};
}

std::uint32_t Draws::next_u32() {
  if (left_ == 0) {
    block_ = philox4x32(counter_, key_);
    ++counter_[2];
    left_ = 4;
  }
  return block_[static_cast<std::size_t>(4 - left_--)];
}

double Draws::uniform() {
  const std::uint64_t upper = next_u32();
  const std::uint64_t bits = upper << 32 | next_u32();
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

double Draws::uniform(double from, double to) {
  return from + (to - from) * uniform();
}

std::uint32_t Draws::below(std::uint32_t bound) {
  std::uint64_t product = std::uint64_t{next_u32()} * bound;
  if (low(product) < bound) {
    const std::uint32_t threshold = (0U - bound) % bound;
    while (low(product) < threshold) product = std::uint64_t{next_u32()} * bound;
  }
  return high(product);
}

}  // namespace headrace::server::sampler
