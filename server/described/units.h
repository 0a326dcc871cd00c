// Numbers with a unit, and paths, as written in configurations.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace headrace::server::described {

/// Longer durations, in nanoseconds and added to a clock, would eventually overflow.
inline constexpr std::chrono::milliseconds kLongestDuration = std::chrono::hours{365 * 24};

/// "30s", "500ms", "2m", "1h", up to a year; nullopt for anything else.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// Bytes: "512MB" (10^6), "1.5 GiB" (2^30), "4096B"; kB to TB and KiB to TiB; nullopt for anything else.
std::optional<std::uint64_t> parse_size(std::string_view text);

/// "scheme://..."
bool is_url(const std::string& text);

/// A path in a configuration that is in `folder`, made absolute. URLs stay as they are.
std::filesystem::path absolute(const std::filesystem::path& folder, const std::string& path);

}  // namespace headrace::server::described
