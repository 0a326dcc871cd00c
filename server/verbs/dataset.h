// SRC of the verbs that read one source: a dataset's folder, or a configuration.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "server/source/source.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {

/// A file, or what is called like one; a folder is a dataset.
bool is_config(const std::filesystem::path& path);
/// A folder with an LMDB in it.
bool is_lmdb(const std::filesystem::path& path);

struct DatasetArguments {
  std::string path, source, part;

  void add_to(CLI::App& verb);
  /// kConfigInvalid: several sources and none chosen, no such source or part. Else the source's errors.
  [[nodiscard]] Result<std::shared_ptr<const source::Source>> open() const;
};

/// `--threads`: 0 is what the machine gives to this process.
unsigned threads_or_all(unsigned threads);

}  // namespace headrace::server::verbs
