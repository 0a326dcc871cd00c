// What fuzz targets share. A target reads one input; whatever rule it breaks ends the process (require() of
// contract.h, or a sanitizer), which is a finding.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "clientlib/base/contract.h"

/// Each target defines it. Called by libFuzzer, or once for each file of the corpus (replay.cpp).
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace headrace::fuzz {

using Bytes = std::span<const std::uint8_t>;

inline std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Reads every byte, so that AddressSanitizer checks it.
inline void touch(Bytes bytes) {
  unsigned sum = 0;
  for (const std::uint8_t byte : bytes) sum += byte;
  asm volatile("" : : "r"(sum));  // so that the reads stay
}

/// Takes an input apart from its front; behind its end there are zeros.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T take() {
    T value{};
    const Bytes bytes = take_bytes(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  /// A number from 0 to `most`.
  std::uint32_t take_up_to(std::uint32_t most) {
    return static_cast<std::uint32_t>(take<std::uint16_t>() % (std::uint64_t{most} + 1));
  }
  Bytes take_bytes(std::size_t most) {
    const Bytes bytes = left_.first(std::min(most, left_.size()));
    left_ = left_.subspan(bytes.size());
    return bytes;
  }
  /// A piece of up to 65,535 bytes, after its length of two bytes.
  Bytes take_piece() { return take_bytes(take<std::uint16_t>()); }
  Bytes rest() { return take_bytes(left_.size()); }
  [[nodiscard]] bool empty() const { return left_.empty(); }

 private:
  Bytes left_;
};

/// Overwrites parts of `memory`: each patch is an offset (4 bytes), a length (1 byte) and the bytes. A small
/// input thus changes a large valid structure.
inline void patch(Input& input, std::span<std::uint8_t> memory) {
  while (!input.empty() && !memory.empty()) {
    const auto at = static_cast<std::size_t>(input.take<std::uint32_t>() % memory.size());
    const Bytes bytes =
        input.take_bytes(std::min<std::size_t>(input.take<std::uint8_t>(), memory.size() - at));
    std::copy(bytes.begin(), bytes.end(), memory.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace headrace::fuzz
