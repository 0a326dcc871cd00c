// One run of `headrace bench`: a server of its own, and client processes that read as fast as they can.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "headrace/error.h"
#include "server/config/config.h"

namespace headrace::server::verbs {

/// Rates, CPU time and shares of the stages. `clients` 0: the server discards the batches. Call it before the
/// process has threads. Afterwards, only errors are logged. kDraining: a signal ended the server.
Result<nlohmann::json> measure(const config::Config& config, const std::string& stream, unsigned clients,
                               double seconds);

}  // namespace headrace::server::verbs
