// Whether a machine is fit for a server, whatever it serves.
#pragma once

#include <vector>

#include "server/verbs/fitness.h"

namespace headrace::server::verbs {

/// Kernel, CPUs, memory, limits, huge pages, and what trainers need for GPUs.
std::vector<Finding> judge_machine();

}  // namespace headrace::server::verbs
