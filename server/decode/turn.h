// Large images take turns: the decoders of all workers together need no more memory than is free.
#pragma once

#include <cstddef>

#include "server/decode/bad.h"

namespace headrace::server::decode {

/// The right to use memory for one large image. Thread safety: as a value; take() is for any thread.
class Turn {
 public:
  /// Images that need less take no turn.
  static constexpr std::size_t kLarge = std::size_t{32} << 20;

  Turn() = default;
  ~Turn() { end(); }
  Turn(Turn&& other) noexcept;
  Turn& operator=(Turn&& other) noexcept;

  /// Waits while other large images use memory that this one needs. The first one never waits. kTooLarge: it
  /// needs more than is free. Its memory must be freed before the turn ends; a thread has one turn at a time.
  static Decoded<Turn> take(std::size_t bytes);
  void end();
  [[nodiscard]] bool is_empty() const { return bytes_ == 0; }

 private:
  explicit Turn(std::size_t bytes) : bytes_(bytes) {}

  std::size_t bytes_ = 0;
};

}  // namespace headrace::server::decode
