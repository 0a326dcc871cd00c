// A source with its classes renamed, merged or reordered.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/described/description.h"
#include "server/source/member.h"

namespace headrace::server::source {

struct RelabelOptions {
  std::vector<SourceRef> of = {};            ///< exactly one
  std::map<std::string, std::string> remap;  ///< class -> class; the target may be new or exist already
  /// The names of labels 0, 1, ...; empty: in the order of the source's classes.
  std::vector<std::string> classes;

  static described::Description<RelabelOptions> description();
};

/// The same samples, indices and names, with classes renamed, merged, and numbered 0, 1, ... without gaps. If
/// `classes` is given, it must contain each class of the source (after `remap`) and may contain more. Memory:
/// 8 bytes per class.
///
/// kConfigInvalid, with all problems at once: the source has no classes, `remap` names an unknown class (with
/// the nearest one), a class is missing from `classes` or listed twice. kDatasetInvalid: a label without a
/// class, with its sample.
Result<std::shared_ptr<const Source>> relabel(const std::shared_ptr<const Source>& of,
                                              const RelabelOptions& options);

}  // namespace headrace::server::source
