// The one size of a source's images, for chains that need to know it.
#pragma once

#include <cstdint>
#include <optional>

#include "headrace/error.h"
#include "server/source/source.h"
#include "server/transform/kernels/image_types.h"

namespace headrace::server::exec {

/// Reads the field's images of a few samples, spread over the source. nullopt: none of them can be read.
/// kConfigInvalid: their sizes differ; names two images.
Result<std::optional<transform::Size>> common_size(const source::Source& source, std::size_t field,
                                                   std::uint64_t max_pixels);

}  // namespace headrace::server::exec
