// Several sources side by side: their fields in one sample.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/described/description.h"
#include "server/source/member.h"

namespace headrace::server::source {

struct ZipOptions {
  std::vector<SourceRef> of = {};
  /// Member -> its field -> the field's name here. Fields that are not listed keep their names.
  std::map<std::string, std::map<std::string, std::string>> rename;
  std::string label;  ///< the member whose class is the sample's; empty: the only member that has classes

  static described::Description<ZipOptions> description();
};

/// Sample i combines sample i of every member: the fields of the first, then those of the second, and so on.
/// Its name is the first member's, its class the one that `label` says. Indices are new (members that are
/// parts have no common index).
///
/// Memory: the members'. Reading moves items within the reader's Sample, never their bytes.
///
/// kConfigInvalid: different sizes (names both), a field name that occurs twice, an unknown name in `rename`
/// or `label` (with the nearest one), classes in several members and no `label`.
Result<std::shared_ptr<const Source>> zip(const std::vector<Member>& members, const ZipOptions& options);

}  // namespace headrace::server::source
