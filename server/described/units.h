// Numbers with a unit and paths, as configurations write them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace headrace::server::described {

/// In nanoseconds, and added to a clock, longer ones would overflow some day.
inline constexpr std::chrono::milliseconds kLongestDuration = std::chrono::hours{365 * 24};

/// "30s", "500ms", "2m", "1h", up to a year; nullopt for anything else.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// Bytes: "512MB" (10^6), "1.5 GiB" (2^30), "4096B"; kB to TB and KiB to TiB; nullopt for anything else.
std::optional<std::uint64_t> parse_size(std::string_view text);

/// "scheme://..."
bool is_url(const std::string& text);

/// A path in a configuration, relative to the `folder` that this lies in. URLs stay as they are.
std::filesystem::path absolute(const std::filesystem::path& folder, const std::string& path);

}  // namespace headrace::server::described
