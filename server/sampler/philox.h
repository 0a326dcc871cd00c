// Counter-based random numbers: clientlib/draws/philox.h, which devices also use.
#pragma once

#include <array>
#include <cstdint>

#include "clientlib/draws/philox.h"

namespace headrace::server::sampler {

using draws::Draws;

/// One block: the key schedule and 10 rounds of the paper.
inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                               std::array<std::uint32_t, 2> key) {
  const auto block = draws::philox4x32({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
  return {block.words[0], block.words[1], block.words[2], block.words[3]};
}

}  // namespace headrace::server::sampler
