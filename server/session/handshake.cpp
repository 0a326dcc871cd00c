#include "server/session/handshake.h"

#include <strings.h>

#include <cstddef>

namespace headrace::server::session {
namespace {

constexpr std::size_t kGreeting = 64;
constexpr char kShortCommand = 4;
constexpr std::string_view kReady{"\5READY", 6};
constexpr std::string_view kIdentity = "Identity";

std::size_t number(std::string_view bytes) {
  std::size_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

/// Removes `size` bytes from the front. False: there are fewer.
bool take(std::string_view& from, std::size_t size, std::string_view& out) {
  if (from.size() < size) return false;
  out = from.substr(0, size);
  from.remove_prefix(size);
  return true;
}

/// Parses properties: a name after a length of one byte, a value after a length of four.
bool is_anonymous(std::string_view properties) {
  while (!properties.empty()) {
    std::string_view length, name, value;
    if (!take(properties, 1, length) || !take(properties, number(length), name) ||
        !take(properties, 4, length) || !take(properties, number(length), value))
      return false;
    const bool identity =
        name.size() == kIdentity.size() && ::strncasecmp(name.data(), kIdentity.data(), name.size()) == 0;
    if (identity && !value.empty()) return false;
  }
  return true;
}

}  // namespace

Handshake classify_handshake(std::string_view bytes) {
  // Signature FF 00*8 7F, and the major version. Before version 3 the first frame is a name.
  if (!bytes.empty() && bytes[0] != '\xff') return Handshake::kRefused;
  if (bytes.size() > 9 && (bytes[9] & 1) == 0) return Handshake::kRefused;
  if (bytes.size() > 10 && static_cast<unsigned char>(bytes[10]) < 3) return Handshake::kRefused;
  if (bytes.size() < kGreeting + 2) return Handshake::kUnfinished;
  const std::size_t length = number(bytes.substr(kGreeting + 1, 1));
  if (bytes[kGreeting] != kShortCommand) return Handshake::kRefused;
  if (bytes.size() < kGreeting + 2 + length) return Handshake::kUnfinished;
  const std::string_view ready = bytes.substr(kGreeting + 2, length);
  const bool sound = ready.starts_with(kReady) && is_anonymous(ready.substr(kReady.size()));
  return sound ? Handshake::kAnonymous : Handshake::kRefused;
}

}  // namespace headrace::server::session
