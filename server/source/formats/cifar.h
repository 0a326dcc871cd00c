// CIFAR-10 and CIFAR-100, binary version: https://www.cs.toronto.edu/~kriz/cifar.html.
#pragma once

#include <filesystem>
#include <memory>

#include "server/described/description.h"
#include "server/source/files/whole_file.h"
#include "server/source/source.h"

namespace headrace::server::source {

enum class CifarSet : std::uint8_t { kTrain, kTest };
enum class CifarLabels : std::uint8_t { kFine, kCoarse };

struct CifarOptions {
  std::filesystem::path path;  ///< the unpacked folder: cifar-10-batches-bin or cifar-100-binary
  CifarSet set = CifarSet::kTrain;
  CifarLabels labels = CifarLabels::kFine;  ///< for CIFAR-100
  RemotePtr remote = {};                    ///< for a path that is a URL

  static described::Description<CifarOptions> description();
};

/// Recognizes CIFAR-10 or CIFAR-100 by the files. Samples are in the files' order, class names come from the
/// text files (without these, classes are numbers). kDatasetInvalid: files missing, truncated, or with labels
/// out of range.
Result<std::shared_ptr<const Source>> open_cifar(const CifarOptions& options);

}  // namespace headrace::server::source
