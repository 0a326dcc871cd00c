// Labels that do not mean the same in all streams of a server.
#pragma once

#include <string>
#include <vector>

#include "server/exec/stream.h"

namespace headrace::server::session {

/// A warning for each pair of streams that give a class other labels, because their lists of classes differ:
/// a model that one of them trained is evaluated wrongly on the other.
std::vector<std::string> label_conflicts(const std::vector<exec::StreamSetup>& streams);

}  // namespace headrace::server::session
