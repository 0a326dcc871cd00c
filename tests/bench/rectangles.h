// Files and the rectangles that random_resized_crop draws from them: the input of both the bare loop and the
// plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/transform/plan.h"

namespace headrace::bench {

struct Item {
  std::vector<std::uint8_t> bytes;
  std::int32_t left = 0, top = 0, width = 0,
               height = 0;  ///< the rectangle that `plan` draws at this item's position
};

/// random_resized_crop 224, flip, normalize, float32 NCHW.
server::transform::Plan training_plan();
/// One item per JPEG of the folder (searched in all its folders, sorted), at positions 0, 1, ...
std::vector<Item> load_items(const std::string& folder, const server::transform::Plan& plan,
                             std::uint64_t epoch);

/// CPU time of the calling thread, seconds.
double thread_cpu_seconds();

}  // namespace headrace::bench
