#include "clientlib/base/default_directory.h"

#include <unistd.h>

namespace headrace {

std::string default_directory(std::string_view runtime_dir) {
  if (runtime_dir.starts_with('/')) return std::string(runtime_dir) + "/headrace";
  return "/tmp/headrace-" + std::to_string(::geteuid());
}

}  // namespace headrace
