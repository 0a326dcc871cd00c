// Reused buffers.
#pragma once

#include <cstddef>
#include <vector>

namespace headrace::server::decode {

/// Makes room for `size` elements, keeping what is there if it is enough: shrinking and growing a vector for
/// every image would clear its bytes every time. A buffer that one giant image left behind is given back.
template <class T>
T* grow(std::vector<T>& buffer, std::size_t size) {
  constexpr std::size_t kLarge = (std::size_t{64} << 20) / sizeof(T);
  if (buffer.size() > kLarge && size <= kLarge) buffer = {};
  if (buffer.size() < size) buffer.resize(size);
  return buffer.data();
}

}  // namespace headrace::server::decode
