// `random_resized_crop: 224` for `random_resized_crop: {size: 224}`.
#pragma once

#include "server/config/document.h"

namespace headrace::server::config {

/// Replaces a transform's value that is not a map by a map, if the transform requires exactly one argument.
void apply_shorthand(Document& document);

}  // namespace headrace::server::config
