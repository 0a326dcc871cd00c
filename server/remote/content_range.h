// The Content-Range header of a partial reply: "bytes 0-99/1000" (RFC 9110, 14.4).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace headrace::server::remote {

struct ContentRange {
  std::uint64_t first = 0, last = 0;   ///< 0 for "bytes */1000"
  std::optional<std::uint64_t> total;  ///< none: unknown ("*")
};

/// None: the text is not a content range.
std::optional<ContentRange> parse_content_range(std::string_view text);

}  // namespace headrace::server::remote
