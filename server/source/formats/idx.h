// IDX files, the format of MNIST, Fashion-MNIST, KMNIST and EMNIST: http://yann.lecun.com/exdb/mnist (defined
// in its appendix).
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
  std::filesystem::path images;      ///< unsigned bytes: count x height x width, or x 3 (color) or x 1
  std::filesystem::path labels;      ///< unsigned bytes: count
  std::vector<std::string> classes;  ///< names; empty: "0", "1", ...
  RemotePtr remote = {};             ///< for paths that are URLs

  static described::Description<IdxOptions> description();
};

/// Reads plain or gzipped files into memory. Sample i is image i. kDatasetInvalid, each with the file and a
/// remedy: not IDX, other types or dimensions, truncated, trailing bytes, different counts, a label without a
/// class.
Result<std::shared_ptr<const Source>> open_idx(const IdxOptions& options);

}  // namespace headrace::server::source
