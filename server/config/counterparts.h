// Words of other libraries, and what to write instead.
#pragma once

#include <map>
#include <string>

namespace headrace::server::config {

using Counterparts = std::map<std::string, const char*>;

/// The hint, or the key, for another library's word `name`; empty if `known` does not have the word.
std::string counterpart(const Counterparts& known, const std::string& name);

/// The arguments of a DataLoader.
const Counterparts& loader_arguments();
/// Transforms of torchvision that only change the type, its arguments that have one value here, and torch's
/// names of types.
const Counterparts& torchvision_words();
/// Other libraries' words for `path`, and words for a combined source's `of`, in any map that has this key.
const Counterparts& path_words();

}  // namespace headrace::server::config
