// WebDataset shards: tar files in which the members of a sample follow one another.
// https://github.com/webdataset/webdataset
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/described/description.h"
#include "server/remote/remote.h"
#include "server/source/files/file_reader.h"
#include "server/source/shards/shard_index.h"
#include "server/source/source.h"

namespace headrace::server::source {

struct WebDatasetOptions {
  std::vector<std::string> paths;  ///< see list_shards() and, for URLs, find_remote_shards()
  ShardRule rule{{"jpg", "jpeg", "png"}, "cls", {}};
  bool cache = true;  ///< keep the index in a file: see IndexCache
  ReadPolicy read;
  std::shared_ptr<const remote::Remote> remote = {};  ///< for paths that are URLs

  static described::Description<WebDatasetOptions> description();
};

/// Walks the headers of all shards, several at a time, unless a cached index belongs to these very files (by
/// name, size, time of change or ETag). Samples are in the order of the shards and, in each shard, of its
/// members; each sample is one read at the offset of its image. Up to a quarter of RLIMIT_NOFILE shards stay
/// open. Memory: 24 bytes and the key per sample. The fingerprint is xxh3 over each shard's name and its
/// samples' keys, sizes and labels in that order.
///
/// kDatasetInvalid, with the shard and sample (the first ten): list_shards()'s and TarReader's errors; no
/// sample; a sample without its image or label, or with a repeated key; a label that is not an integer or has
/// no class. kTransientIo: the system's read errors.
Result<std::shared_ptr<const Source>> open_webdataset(const WebDatasetOptions& options);

}  // namespace headrace::server::source
