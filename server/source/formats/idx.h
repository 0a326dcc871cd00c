// IDX files, as MNIST, Fashion-MNIST, KMNIST and EMNIST come: http://yann.lecun.com/exdb/mnist (its appendix
// defines the format).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "server/described/description.h"
#include "server/source/files/whole_file.h"
#include "server/source/source.h"

namespace headrace::server::source {

struct IdxOptions {
  std::filesystem::path images;      ///< unsigned bytes: count x height x width, or x 3 (colour) or x 1
  std::filesystem::path labels;      ///< unsigned bytes: count
  std::vector<std::string> classes;  ///< names; empty: "0", "1", ...
  RemotePtr remote = {};             ///< for paths that are URLs

  static described::Description<IdxOptions> description();
};

/// Plain or gzipped, read into memory. Sample i is image i. kDatasetInvalid, each by file and with what to
/// do: not IDX, other types or dimensions, cut, trailing bytes, counts that differ, a label without a class.
Result<std::shared_ptr<const Source>> open_idx(const IdxOptions& options);

}  // namespace headrace::server::source
