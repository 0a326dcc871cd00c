// A source with other classes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/described/description.h"
#include "server/source/member.h"

namespace headrace::server::source {

struct RelabelOptions {
  std::vector<SourceRef> of = {};            ///< one
  std::map<std::string, std::string> remap;  ///< class -> class, which may be new, or there already
  std::vector<std::string> classes;  ///< labels 0, 1, ...; empty: in the order of the source's classes

  static described::Description<RelabelOptions> description();
};

/// The same samples, indices and names; classes are called anew, put together, and numbered 0, 1, ... without
/// gaps. With `classes` each class of the source must be one of them (after `remap`); those may have more.
/// Memory: 8 bytes per class.
///
/// kConfigInvalid, all problems at once: the source has no classes, `remap` names one that is not there (with
/// the nearest), a class that is none of `classes`, one that is there twice. kDatasetInvalid: a label without
/// a class, with its sample.
Result<std::shared_ptr<const Source>> relabel(const std::shared_ptr<const Source>& of,
                                              const RelabelOptions& options);

}  // namespace headrace::server::source
