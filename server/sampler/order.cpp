#include "server/sampler/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "clientlib/base/contract.h"

namespace headrace::server::sampler {
namespace {

constexpr std::uint32_t kOrderStage = 0xFFFF0001;  // of Draws: Headrace's own stages begin at 0xFFFF0000

// The finaliser of SplitMix64 (Steele et al. 2014): a bijection whose output bits depend on all input bits.
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch)
    : Permutation(n, Draws(seed, epoch, 0, kOrderStage)) {}

Permutation::Permutation(std::uint64_t n, Draws keys) {
  feistel_.n = n;
  require(n >= 1, "a permutation of nothing");
  const auto bits = static_cast<std::uint32_t>(std::bit_width(n - 1));
  feistel_.half_bits = std::max(1U, (bits + 1) / 2);
  for (auto& key : feistel_.keys) {
    key = std::uint64_t{keys.next_u32()} << 32;
    key |= keys.next_u32();
  }
}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  require(position < feistel_.n, "a position outside of the permutation");
  const std::uint32_t half = feistel_.half_bits;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  std::uint64_t x = position;
  do {
    std::uint64_t left = x >> half, right = x & mask;
    for (const auto key : feistel_.keys) {
      const std::uint64_t next = left ^ (mix(right + key) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= feistel_.n);
  return x;
}

void Permutation::apply(std::span<std::uint64_t> positions) const {
  for (const std::uint64_t position : positions)
    require(position < feistel_.n, "a position outside of the permutation");
  permute(feistel_, positions);
}

EpochPlan::EpochPlan(std::uint64_t n, std::uint32_t batch_size, std::uint32_t world_size, LastBatch last)
    : n_(n), batch_size_(batch_size), world_size_(world_size), last_(last) {
  require(n >= 1 && batch_size >= 1 && world_size >= 1, "an epoch plan without samples, rows or ranks");
}

std::uint64_t EpochPlan::length(std::uint64_t origin) const {
  require(origin <= n_, "an origin past the end of the epoch");
  const std::uint64_t global = std::uint64_t{batch_size_} * world_size_;
  const std::uint64_t left = n_ - origin;
  const bool tail = left % global != 0 && last_ != LastBatch::kDrop;
  return left / global + (tail ? 1 : 0);
}

BatchRows EpochPlan::rows(std::uint64_t origin, std::uint64_t batch, std::uint32_t rank) const {
  require(batch < length(origin) && rank < world_size_, "a batch or rank outside of the epoch");
  const std::uint64_t global = std::uint64_t{batch_size_} * world_size_;
  const std::uint64_t begin = origin + batch * global;
  const std::uint64_t left = n_ - begin;
  std::uint64_t rows = batch_size_;
  if (left < global && last_ == LastBatch::kShort) rows = (left + world_size_ - 1) / world_size_;
  const std::uint64_t first = begin + rank * rows;
  const std::uint64_t valid = first >= n_ ? 0 : std::min(rows, n_ - first);
  return {first, static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(valid)};
}

std::uint64_t EpochPlan::consumed(std::uint64_t origin, std::uint64_t batch) const {
  require(origin <= n_, "an origin past the end of the epoch");
  return position_after(n_, origin, batch, std::uint64_t{batch_size_} * world_size_);
}

std::string no_batch(std::uint64_t n, std::uint32_t batch_size, std::uint32_t world_size) {
  const std::string ranks = world_size > 1 ? fmt::format(" for each of {} ranks", world_size) : "";
  return fmt::format(
      "an epoch has no batch: {} samples, batches of {}{}, and the incomplete one is dropped (`last: drop`); "
      "use `short` or `pad`, or smaller batches",
      n, batch_size, ranks);
}

}  // namespace headrace::server::sampler
