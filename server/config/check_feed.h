// What a stream over a feed is: its source says of what size its batches are, and their order is the
// feeder's.
#pragma once

#include "server/config/config.h"
#include "server/config/document.h"

namespace headrace::server::config {

/// Gives a stream over a feed the feed's batch size, its order and `on_lag: wait` (no batch can be built
/// twice); leaves other streams as they are.
void apply_feed(const Config& config, StreamConfig& stream);

/// The stream at `at` is over a feed: what has no meaning there must not be said, and no other stream may be
/// over the same feed.
void check_fed(const Document& document, const Pointer& at, const Config& config,
               std::vector<Problem>& problems);

}  // namespace headrace::server::config
