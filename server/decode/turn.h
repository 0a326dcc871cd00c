// Large images reserve memory before they are decoded, so that all workers together need no more than is
// free.
#pragma once

#include <cstddef>

#include "server/decode/bad.h"

namespace headrace::server::decode {

/// The right to use memory for one large image. Thread safety: one thread at a time for each object; any
/// thread may call take().
class Turn {
 public:
  /// Images that need less take no turn.
  static constexpr std::size_t kLarge = std::size_t{32} << 20;

  Turn() = default;
  ~Turn() { end(); }
  Turn(Turn&& other) noexcept;
  Turn& operator=(Turn&& other) noexcept;

  /// Waits until there is free memory for `bytes` beside all other turns. kTooLarge: there was not within 10
  /// s, and no other image has a turn. Throws Stopped (stop.h). Free the image's memory before its turn ends.
  /// A thread may hold one turn at a time: waiting for a second one could deadlock.
  static Decoded<Turn> take(std::size_t bytes);
  void end();
  [[nodiscard]] bool is_empty() const { return bytes_ == 0; }

 private:
  explicit Turn(std::size_t bytes) : bytes_(bytes) {}

  std::size_t bytes_ = 0;
};

}  // namespace headrace::server::decode
