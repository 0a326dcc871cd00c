#include "server/source/source_type.h"

namespace headrace::server::source {

/// Every type of source; each is defined in the file of that name.
// clang-format off
#define HEADRACE_SOURCES(each) \
  each(image_folder) \
  each(idx) \
  each(cifar) \
  each(paired_folders) \
  each(manifest) \
  each(lmdb) \
  each(webdataset) \
  each(npy) \
  each(feed) \
  each(synthetic) \
  each(concat) \
  each(subset) \
  each(repeat) \
  each(zip) \
  each(relabel)
// clang-format on

namespace types {
#define HEADRACE_DECLARE(name) SourceType name();
HEADRACE_SOURCES(HEADRACE_DECLARE)
}  // namespace types

const std::vector<SourceType>& source_types() {
#define HEADRACE_TYPE(name) types::name(),
  static const std::vector<SourceType> all{HEADRACE_SOURCES(HEADRACE_TYPE)};
  return all;
}

const SourceType* find_source_type(std::string_view name) {
  for (const SourceType& type : source_types())
    if (type.name == name) return &type;
  return nullptr;
}

}  // namespace headrace::server::source
