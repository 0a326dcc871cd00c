#include "server/source/labels.h"

#include <fmt/format.h>

namespace headrace::server::source {

Result<void> check_labels(const Source& source) {
  const auto& classes = source.class_names();
  for (std::uint64_t i = 0; i < source.size(); ++i) {
    const std::int64_t label = source.label(i);
    if (label >= 0 && label < std::ssize(classes)) continue;
    return fail(ErrorCode::kDatasetInvalid,
                classes.empty()
                    ? "the samples have labels, but classes have no names; pack it again"
                    : label_out_of_range(fmt::format("the label of {}", source.name(i)), label, classes));
  }
  return {};
}

}  // namespace headrace::server::source
