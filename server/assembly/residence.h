// The two parts of a stream with `residence: gpu`: the description by which a client's device computes
// batches, and the upload stream, from which the client uploads the dataset once.
#pragma once

#include <string>
#include <vector>

#include "headrace/error.h"
#include "headrace/residence.h"
#include "server/config/config.h"
#include "server/exec/field_plans.h"
#include "server/source/source.h"

namespace headrace::server::assembly {

struct ResidentStream {
  Residence residence;
  std::string name;             ///< of the upload stream; configured streams cannot have such names
  config::StreamConfig config;  ///< of the upload stream, which delivers the dataset in its own order
};

/// For the stream `name` with these fields of `source`. kConfigInvalid: several images, masks, ragged fields,
/// images of different sizes, and the errors of transform::resident_chain().
Result<ResidentStream> resident_stream(const std::string& name, const config::StreamConfig& config,
                                       const source::Source& source,
                                       const std::vector<exec::FieldPlan>& fields);

}  // namespace headrace::server::assembly
