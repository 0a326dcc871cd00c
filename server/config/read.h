// Turns a document that conforms to the schema into structs, and makes the checks that a schema cannot
// express.
#pragma once

#include "server/config/document.h"

namespace headrace::server::config {

// `value`: the map at `reading`, whose faults are added to. Invalid keys have been removed from it.

ServerConfig read_server(const described::Json& value, const described::Reading& reading,
                         const Environment& environment);
StreamConfig read_stream(const described::Json& value, const described::Reading& reading);

/// Finds unknown names and parts, cycles, sources that are nested too deep, and splits whose parts could
/// share a sample because a source occurs more than once in what is split. `sources`: those without a problem
/// of their own.
void check_composites(Document& document, const std::map<std::string, SourceConfig>& sources);

/// Gives a stream over a feed the feed's batch size, its order and `on_lag: wait` (no batch can be built
/// twice); does not change other streams.
void apply_feed(const Config& config, StreamConfig& stream);

/// Checks across the keys of a stream, and between streams and sources. `config`: the valid sources, and the
/// streams before this one. `sources`: the names of all sources; null: they are not known.
void check_stream(const StreamConfig& stream, const described::Json& value, const described::Reading& reading,
                  const Config& config, const std::vector<std::string>* sources);

}  // namespace headrace::server::config
