// Where server and clients meet unless they are told another place: one rule for both.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

/// <runtime_dir>/headrace if `runtime_dir`, the value of XDG_RUNTIME_DIR, is absolute (the XDG specification
/// has relative ones ignored); else /tmp/headrace-<effective uid>.
std::string default_directory(std::string_view runtime_dir);

}  // namespace headrace
