// The compressors of records, each with one call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace headrace::server::store {

/// The numbers are part of the record format.
enum class Compression : std::uint8_t { kNone = 0, kLz4 = 1, kZstd = 2 };

/// "none", "lz4", "zstd".
std::string_view name_of(Compression compression);
std::optional<Compression> compression_from_name(std::string_view name);

/// Replaces `out` by the compressed `raw`. False if that does not shrink it, as for JPEG files; `out` is then
/// unspecified. Any thread may call it; contexts are per thread.
bool compress(Compression how, std::span<const std::uint8_t> raw, std::vector<std::uint8_t>& out);

/// Fills `out`, which has the uncompressed size. False if the bytes are damaged or of another length; never
/// writes beyond `out`. Any thread may call it.
bool decompress(Compression how, std::span<const std::uint8_t> stored, std::span<std::uint8_t> out);

}  // namespace headrace::server::store
