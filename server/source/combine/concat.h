// Several sources, one after the other.
#pragma once

#include <memory>
#include <vector>

#include "server/source/member.h"

namespace headrace::server::source {

/// The samples of the first member, then those of the second, and so on, renumbered. A sample's name is
/// "<member>/<its name there>".
///
/// Fields must agree: the same names (in any order; the first member's order is used), and for each name the
/// same content, type, shape, channels, scale and mask flag. Images of different sizes have no common size.
///
/// Classes are matched by name: first those of the first member in its order, then each further member's new
/// ones; so one name has one label in all members. Members with numbers instead of names (0, 1, ...) can only
/// be combined with each other.
///
/// Memory: the members', and 8 bytes per class of each. A read finds its member by binary search.
///
/// kConfigInvalid: fields that differ (names the fields and members), classes in only some members, names in
/// some and numbers in others. kDatasetInvalid: a label without a class; more than kMostComposed samples.
Result<std::shared_ptr<const Source>> concat(const std::vector<Member>& members);

}  // namespace headrace::server::source
