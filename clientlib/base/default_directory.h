// The server's directory when neither the configuration nor HEADRACE_ADDRESS names one. Server and client
// compute it by the same rule, and both check its owner (clientlib/base/trusted_path.h), because any user can
// create a folder in /tmp first.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

/// <runtime_dir>/headrace if `runtime_dir`, the value of XDG_RUNTIME_DIR, meets the XDG specification: an
/// absolute path, owned by this user, not writable by others. (`sudo -E` keeps another user's value.)
/// Otherwise /tmp/headrace-<effective uid>.
std::string default_directory(std::string_view runtime_dir);

}  // namespace headrace
