// Labels of a whole source.
#pragma once

#include "server/sample/labels.h"
#include "server/source/source.h"

namespace headrace::server::source {

using sample::are_numbers;
using sample::kMostNumberedClasses;
using sample::label_limit;
using sample::label_out_of_range;
using sample::numbered_classes;
using sample::unknown_class;

/// kDatasetInvalid: a sample's label is no class of the source; which sample, and what to do.
Result<void> check_labels(const Source& source);

}  // namespace headrace::server::source
