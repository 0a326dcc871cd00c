// Recognizes a file that was given instead of a configuration or a dataset.
#pragma once

#include <filesystem>
#include <string>

namespace headrace::server::source {

/// Judges by the first bytes: "is a JPEG image, no configuration: give …". Empty: it may be text, cannot be
/// read, or is not a file.
std::string why_no_configuration(const std::filesystem::path& path);

}  // namespace headrace::server::source
