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

/// kDatasetInvalid: a sample's label is not a class of the source; names the sample and the remedy.
Result<void> check_labels(const Source& source);

}  // namespace headrace::server::source
