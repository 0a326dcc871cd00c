// What a file is that was given where a configuration or a dataset belongs.
#pragma once

#include <filesystem>
#include <string>

namespace headrace::server::source {

/// By its first bytes: "is a JPEG image, no configuration: give …". Empty: it may be text, or cannot be read,
/// or is no file.
std::string why_no_configuration(const std::filesystem::path& path);

}  // namespace headrace::server::source
