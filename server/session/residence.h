// What a stream with `residence: gpu` is for a client with a device: the description that it makes batches
// by, and the stream that it uploads the set from, once.
#pragma once

#include <string>
#include <vector>

#include "headrace/error.h"
#include "headrace/residence.h"
#include "server/config/config.h"
#include "server/exec/field_plans.h"
#include "server/source/source.h"

namespace headrace::server::session {

struct ResidentStream {
  Residence residence;
  std::string name;             ///< of the upload stream; no stream of a configuration is called so
  config::StreamConfig config;  ///< of the upload stream: the set in its own order, as it is to be resident
};

/// Of a stream `name` whose fields are `fields`, of `source`. kConfigInvalid: several images, masks, ragged
/// fields, images of more than one size, and what transform::resident_chain() refuses.
Result<ResidentStream> resident_stream(const std::string& name, const config::StreamConfig& config,
                                       const source::Source& source,
                                       const std::vector<exec::FieldPlan>& fields);

}  // namespace headrace::server::session
