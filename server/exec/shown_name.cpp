#include "server/exec/shown_name.h"

#include "server/log/sink.h"

namespace headrace::server::exec {

std::string shown_name(const source::Source& source, std::uint64_t index) {
  return log::escaped_line(source.name(index));
}

}  // namespace headrace::server::exec
