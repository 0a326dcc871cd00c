// A database that `headrace pack` wrote: see server/store.
#pragma once

#include <filesystem>
#include <memory>

#include "server/described/description.h"
#include "server/source/source.h"

namespace headrace::server::source {

struct LmdbOptions {
  std::filesystem::path path;  ///< the folder with data.mdb
  bool verify = false;         ///< the checksum of each record that is read

  static described::Description<LmdbOptions> description();
};

/// Samples, labels, names, classes, indices and fingerprint are the packed source's (the fingerprint says so
/// where pixels were decoded or resized for good). Items are spans into the mapped file; what was compressed
/// is unpacked. Bounds are checked at each read; checksums only with `verify`, and by `headrace verify`.
///
/// Nobody may write the database while it is served; headrace pack never does so once it is complete. Needs
/// no right to write, and makes no lock file. Memory: 16 bytes per sample.
///
/// kDatasetInvalid, here or by read: no LMDB, none that headrace pack wrote, not finished, cut, samples
/// missing, a damaged record.
Result<std::shared_ptr<const Source>> open_lmdb(const LmdbOptions& options);

}  // namespace headrace::server::source
