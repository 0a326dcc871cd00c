// The server's directory unless the configuration or HEADRACE_ADDRESS names one: one rule for both sides.
// Both sides check it (clientlib/base/trusted_path.h): anybody can make a folder in /tmp first.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

/// <runtime_dir>/headrace if `runtime_dir`, the value of XDG_RUNTIME_DIR, is what the XDG specification asks
/// for: an absolute path, of this user, not writable by others (`sudo -E` keeps another user's). Else
/// /tmp/headrace-<effective uid>.
std::string default_directory(std::string_view runtime_dir);

}  // namespace headrace
