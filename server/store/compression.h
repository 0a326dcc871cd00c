// The compressors of records, one call each.
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

/// Replaces `out` by `raw`, compressed. False if that does not shrink it (then `out` means nothing): JPEG
/// files, say. Any thread; contexts are the thread's own.
bool compress(Compression how, std::span<const std::uint8_t> raw, std::vector<std::uint8_t>& out);

/// Fills `out`, whose size is what was compressed. False if the bytes are damaged or of another length;
/// never writes beyond `out`. Any thread.
bool decompress(Compression how, std::span<const std::uint8_t> stored, std::span<std::uint8_t> out);

}  // namespace headrace::server::store
