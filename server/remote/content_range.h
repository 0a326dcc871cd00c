// The header of a reply that is a part of something: "bytes 0-99/1000" (RFC 9110, 14.4).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace headrace::server::remote {

struct ContentRange {
  std::uint64_t first = 0, last = 0;   ///< of "bytes */1000": 0
  std::optional<std::uint64_t> total;  ///< none: not known, "*"
};

/// None: it is not one.
std::optional<ContentRange> parse_content_range(std::string_view text);

}  // namespace headrace::server::remote
