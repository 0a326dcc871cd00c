#include "server/sampler/order.h"

#include <fmt/format.h>

#include "clientlib/base/contract.h"

namespace headrace::server::sampler {

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch)
    : Permutation(n, Draws(seed, epoch, 0, draws::kOrderStage)) {}

Permutation::Permutation(std::uint64_t n, Draws keys) {
  require(n >= 1, "a permutation of nothing");
  feistel_ = draws::feistel_of(n, keys);
}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  require(position < feistel_.n, "a position outside of the permutation");
  return draws::permuted(feistel_, position);
}

void Permutation::apply(std::span<std::uint64_t> positions) const {
  for (const std::uint64_t position : positions)
    require(position < feistel_.n, "a position outside of the permutation");
  permute(feistel_, positions);
}

std::string no_batch(std::uint64_t n, std::uint32_t batch_size, std::uint32_t world_size) {
  const std::string ranks = world_size > 1 ? fmt::format(" for each of {} ranks", world_size) : "";
  return fmt::format(
      "an epoch has no batch: {} samples, batches of {}{}, and the incomplete one is dropped (`last: drop`); "
      "use `short` or `pad`, or smaller batches",
      n, batch_size, ranks);
}

}  // namespace headrace::server::sampler
