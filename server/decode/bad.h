// Why an image was refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace headrace::server::decode {

/// Also the `reason` label of the error counter. Never renumber.
enum class BadReason : std::uint8_t {
  kNone,
  kEmpty,          ///< zero bytes
  kUnknownFormat,  ///< neither JPEG nor PNG by content
  kTruncated,      ///< the file ends too early
  kCorrupt,
  kTooLarge,     ///< more than max_pixels, or than there is memory for
  kUnsupported,  ///< a valid file of a kind that PIL refuses too, or too many scans
  kWarning,      ///< decodable with a warning, and the configuration says that warnings are bad
  kMismatch,     ///< the images of one sample do not fit together in size or scale
  kUnreadable    ///< the sample exists but cannot be used: too many bytes, or bad when it was packed
};
std::string_view name_of(BadReason reason);

struct Bad {
  BadReason reason = BadReason::kCorrupt;
  std::string detail;
};

/// "truncated (the file ends ...)"
std::string to_string(const Bad& bad);

template <class T>
using Decoded = tl::expected<T, Bad>;

inline tl::unexpected<Bad> bad(BadReason reason, std::string detail) {
  return tl::make_unexpected(Bad{reason, std::move(detail)});
}

}  // namespace headrace::server::decode
