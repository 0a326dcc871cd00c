#include "server/source/columns/class_folders.h"

#include <utility>

#include "server/source/columns/table.h"

namespace headrace::server::source {

Result<std::shared_ptr<const Source>> make_class_folders(ClassFolders found) {
  if (!found.empty.empty())
    return fail(empty_classes(found.root, std::move(found.empty), found.classes.size()));
  if (auto finished = found.images->finish(); !finished) return fail(std::move(finished.error()));
  found.labels.shrink_to_fit();
  Table table{
      .origin = found.root, .columns = {}, .labels = std::move(found.labels), .classes = {}, .warning = {}};
  table.warning = joined(joined(found.left_out.warning(found.root), strays_warning(found.root, found.strays)),
                         classes_warning(found.root, found.classes));
  table.classes = std::move(found.classes);
  table.columns.push_back(std::move(found.images));
  return make_table(std::move(table));
}

}  // namespace headrace::server::source
