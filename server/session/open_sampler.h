// From a configured sampler to one over an open source.
#pragma once

#include "headrace/error.h"
#include "server/config/config.h"
#include "server/sampler/sampler.h"
#include "server/source/source.h"

namespace headrace::server::session {

/// Reads the files or the field that it is of. kConfigInvalid: what is wrong in those (file:line), classes
/// that are not there, without a weight, too few or too small; otherwise the source's errors.
Result<sampler::SamplerPtr> open_sampler(const config::StreamConfig& stream, const source::Source& source);

}  // namespace headrace::server::session
