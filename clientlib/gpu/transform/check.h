// From steps that another process wrote to tasks that the kernel can trust.
#pragma once

#include <cstddef>
#include <string>

#include "clientlib/gpu/transform/task.h"
#include "headrace/gpu_transform.h"

namespace headrace::gpu {

/// What is wrong with a task's steps and picture, or nothing. `bytes`: of the batch. After it, everything
/// that the kernel computes from them stays within the batch and the output's row.
std::string wrong_with(const RowTask& task, const TransformOutput& output, std::int32_t channels,
                       std::size_t bytes);

/// Chooses the tiles of a checked task. False: not even one pixel's inputs fit into a block's shared memory,
/// which can be only beyond kMaxShrink or where more is reflected than there is.
bool plan_tiles(RowTask& task, std::int32_t channels);

}  // namespace headrace::gpu
