// The cache `encoded`: a source whose samples are read once and then lie in memory as they were read.
#pragma once

#include <memory>

#include "server/cache/arena.h"
#include "server/cache/idle_tiler.h"
#include "server/source/source.h"

namespace headrace::server::cache {

/// `inner`, which is no part of another source, with its samples kept in `arena` as long as there is room. A
/// hit gives spans into the cache. What cannot be read is not kept: it is read again, with the same error.
std::shared_ptr<const source::Source> keep_encoded(std::shared_ptr<const source::Source> inner,
                                                   std::shared_ptr<Arena> arena);

/// The same, and who makes tiles of its images once workers are idle. A hit on an image that still waits for
/// that copies it.
struct TiledSource {
  std::shared_ptr<const source::Source> source;
  std::shared_ptr<IdleTiler> tiler;
};
TiledSource keep_tiled(std::shared_ptr<const source::Source> inner, std::shared_ptr<Arena> arena);

}  // namespace headrace::server::cache
