// Opens a configured sampler over an open source.
#pragma once

#include "headrace/error.h"
#include "server/config/config.h"
#include "server/sampler/sampler.h"
#include "server/source/source.h"

namespace headrace::server::assembly {

/// Reads the files or the field that the sampler needs. kConfigInvalid: errors in these (file:line); classes
/// that do not exist, have no weight, are too few or too small. Otherwise the source's errors.
Result<sampler::SamplerPtr> open_sampler(const config::StreamConfig& stream, const source::Source& source);

}  // namespace headrace::server::assembly
