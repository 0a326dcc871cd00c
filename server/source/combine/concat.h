// Several sources, one after the other.
#pragma once

#include <memory>
#include <vector>

#include "server/source/member.h"

namespace headrace::server::source {

/// The samples of the first member, then those of the second, ...; numbered anew. A sample is called
/// "<member>/<its name there>".
///
/// Fields must agree: the same names (in any order; the first member's counts), and of each content, type,
/// shape, channels, scale and whether it is a mask. Images whose sizes differ have no common size.
///
/// Classes go by name: first those of the first member in its order, then what each further one adds; so one
/// name has one label, wherever it comes from. Members that have numbers instead of names (0, 1, ...) go
/// together with their like alone.
///
/// Memory: of the members, and 8 bytes per class of each. A read finds its member by binary search.
///
/// kConfigInvalid: fields that differ (which, in which members), classes in some members alone, names in some
/// and numbers in others. kDatasetInvalid: a label without a class; more than kMostComposed samples.
Result<std::shared_ptr<const Source>> concat(const std::vector<Member>& members);

}  // namespace headrace::server::source
