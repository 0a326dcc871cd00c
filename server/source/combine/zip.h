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
  /// Member -> its field -> what that is called here. Fields that are not named keep their names.
  std::map<std::string, std::map<std::string, std::string>> rename;
  std::string label;  ///< whose class is the sample's; empty: of the one member that has classes

  static described::Description<ZipOptions> description();
};

/// Sample i is sample i of every member: the fields of the first, then those of the second, ... Its name and
/// class are those of one: the name the first's, the class as `label` says. Numbered anew (where members are
/// parts, those have no common index).
///
/// Memory: of the members. Reading moves items about in the reader's Sample, never their bytes.
///
/// kConfigInvalid: sizes that differ (both named), a field's name that comes twice, a name in `rename` or
/// `label` that is not there (with the nearest), classes in several members and no `label`.
Result<std::shared_ptr<const Source>> zip(const std::vector<Member>& members, const ZipOptions& options);

}  // namespace headrace::server::source
