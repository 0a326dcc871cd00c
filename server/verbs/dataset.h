// SRC, the argument of the verbs that read one source: a dataset's folder, or a configuration.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "server/source/source.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {

/// Whether it is a file or has a configuration's extension; a folder is a dataset.
bool is_config(const std::filesystem::path& path);
/// Whether it is a folder with an LMDB.
bool is_lmdb(const std::filesystem::path& path);

struct DatasetArguments {
  std::string path, source, part;

  void add_to(CLI::App& verb);
  /// kConfigInvalid: several sources and none chosen, or an unknown source or part. Otherwise the source's
  /// errors.
  [[nodiscard]] Result<std::shared_ptr<const source::Source>> open() const;
};

/// `--threads`: 0 means all that this process may use.
unsigned threads_or_all(unsigned threads);

}  // namespace headrace::server::verbs
