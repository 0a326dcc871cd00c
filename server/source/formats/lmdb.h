// A database written by `headrace pack`: see server/store.
#pragma once

#include <filesystem>
#include <memory>

#include "server/described/description.h"
#include "server/source/source.h"

namespace headrace::server::source {

struct LmdbOptions {
  std::filesystem::path path;  ///< the folder with data.mdb
  bool verify = false;         ///< check the checksum of each record that is read

  static described::Description<LmdbOptions> description();
};

/// Samples, labels, names, classes, indices and fingerprint are the packed source's (the fingerprint differs
/// if pixels were decoded or resized permanently). Items are spans into the mapped file; compressed ones are
/// uncompressed. Every read checks bounds; only `verify` and `headrace verify` check checksums.
///
/// No process may write the database while it is served; headrace pack never writes a complete one. Needs no
/// write permission and creates no lock file. Memory: 16 bytes per sample.
///
/// kDatasetInvalid, here or from read: not an LMDB, not written by headrace pack, unfinished, truncated,
/// samples missing, a damaged record.
Result<std::shared_ptr<const Source>> open_lmdb(const LmdbOptions& options);

}  // namespace headrace::server::source
