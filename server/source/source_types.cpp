#include "server/source/source_type.h"

namespace headrace::server::source {

/// Every type of source: each is in the file of its name.
#define HEADRACE_FOR_EACH_SOURCE(do)                                                                   \
  do                                                                                                   \
  (image_folder) do(idx) do(cifar) do(paired_folders) do(manifest) do(lmdb) do(webdataset) do(npy) do( \
      feed) do(synthetic) do(concat) do(subset) do(repeat) do(zip) do(relabel)

namespace types {
#define HEADRACE_DECLARE(name) SourceType name();
HEADRACE_FOR_EACH_SOURCE(HEADRACE_DECLARE)
}  // namespace types

const std::vector<SourceType>& source_types() {
#define HEADRACE_TYPE(name) types::name(),
  static const std::vector<SourceType> all{HEADRACE_FOR_EACH_SOURCE(HEADRACE_TYPE)};
  return all;
}

const SourceType* find_source_type(std::string_view name) {
  for (const SourceType& type : source_types())
    if (type.name == name) return &type;
  return nullptr;
}

}  // namespace headrace::server::source
