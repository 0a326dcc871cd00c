// Checks the first bytes of a control connection: the greeting and the READY command of ZMTP 3
// (rfc.zeromq.org/spec/23).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headrace::server::session {

enum class Handshake : std::uint8_t {
  kUnfinished,
  kAnonymous,  ///< as clients of headrace are
  /// It sets an identity, or its ZMTP version has none in the handshake. libzmq accepts any identity, even
  /// one that it later generates for another peer: then it aborts.
  kNamed
};

/// The longest that is not kUnfinished.
inline constexpr std::size_t kLongestHandshake = 64 + 2 + 255;

/// `bytes`: all that the peer has sent so far, at least the first kLongestHandshake of it.
Handshake look_at_handshake(std::string_view bytes);

}  // namespace headrace::server::session
