// The cache `encoded`: a source whose samples are read once and then kept in memory as they were read.
#pragma once

#include <memory>

#include "server/cache/arena.h"
#include "server/cache/idle_tiler.h"
#include "server/source/source.h"

namespace headrace::server::cache {

/// `inner`, which must not be part of another source, with the announced fields (Source::will_read()) of its
/// samples kept in `arena` while there is room. A hit gives spans into the cache. A failed read is not kept:
/// the sample is read again, with the same error.
std::shared_ptr<const source::Source> keep_encoded(std::shared_ptr<const source::Source> inner,
                                                   std::shared_ptr<Arena> arena);

/// The same, with the tiler that rewrites its images once workers are idle. A hit on an image that still
/// waits for the tiler copies it.
struct TiledSource {
  std::shared_ptr<const source::Source> source;
  std::shared_ptr<IdleTiler> tiler;
};
TiledSource keep_tiled(std::shared_ptr<const source::Source> inner, std::shared_ptr<Arena> arena);

}  // namespace headrace::server::cache
