// From a document, each key of which the schema holds good, to structs; and what a schema cannot say.
#pragma once

#include "server/config/document.h"

namespace headrace::server::config {

// `value`: the map at `reading`, whose faults are added to. Keys that are wrong have been left out of it.

ServerConfig read_server(const described::Json& value, const described::Reading& reading,
                         const Environment& environment);
StreamConfig read_stream(const described::Json& value, const described::Reading& reading,
                         const ServerConfig& server);

/// Finds names and parts that are not there, cycles, sources that are nested too deep, and splits whose parts
/// could share a sample because a source comes more than once in what is split. `sources`: those that have no
/// problem of their own.
void check_composites(Document& document, const std::map<std::string, SourceConfig>& sources);

/// Gives a stream over a feed the feed's batch size, its order and `on_lag: wait` (no batch can be built
/// twice); leaves other streams as they are.
void apply_feed(const Config& config, StreamConfig& stream);

/// What must hold between the keys of a stream, and between streams and sources. `config`: the sources that
/// are sound, and the streams that come before it. `sources`: the names of all; null: they are not known.
void check_stream(const StreamConfig& stream, const described::Json& value, const described::Reading& reading,
                  const Config& config, const std::vector<std::string>* sources);

}  // namespace headrace::server::config
