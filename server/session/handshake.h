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
  /// It names itself, or speaks a version in which that is no part of the handshake. libzmq takes any name,
  /// also one that it gives to somebody else later: and then ends the process.
  kNamed
};

/// The longest that is not kUnfinished.
inline constexpr std::size_t kLongestHandshake = 64 + 2 + 255;

/// `bytes`: all that the peer has sent so far, at least the first kLongestHandshake of it.
Handshake look_at_handshake(std::string_view bytes);

}  // namespace headrace::server::session
