// Checks the first bytes of a control connection: the greeting and the READY command of ZMTP 3
// (rfc.zeromq.org/spec/23).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headrace::server::session {

enum class Handshake : std::uint8_t {
  kUnfinished,
  kAnonymous,  ///< like headrace's clients
  /// It sets an identity, speaks a version before ZMTP 3, or is malformed. libzmq accepts any identity, and
  /// aborts if it later generates the same one for another peer.
  kRefused
};

/// The longest accepted handshake: with this many bytes the result is never kUnfinished.
inline constexpr std::size_t kLongestHandshake = 64 + 2 + 255;

/// `bytes`: everything that the peer has sent so far, at least its first kLongestHandshake bytes.
Handshake classify_handshake(std::string_view bytes);

}  // namespace headrace::server::session
