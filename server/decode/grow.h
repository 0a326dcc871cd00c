// Scratch memory that is used again for image after image.
#pragma once

#include <cstddef>
#include <vector>

#ifdef HEADRACE_MEMCHECK
#include <valgrind/memcheck.h>
#endif

namespace headrace::server::decode {

/// Tells Valgrind that the content is out of use, so that it finds whatever reads it again. Nothing else
/// does.
inline void disuse([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef HEADRACE_MEMCHECK
  (void)VALGRIND_MAKE_MEM_UNDEFINED(memory, bytes);
#endif
}

/// Makes room for `size` elements of unspecified content. A vector that is shrunk and grown for every image
/// would clear its bytes every time. A buffer that one giant image left behind is given back.
template <class T>
T* grow(std::vector<T>& buffer, std::size_t size) {
  constexpr std::size_t kLarge = (std::size_t{64} << 20) / sizeof(T);
  if (buffer.size() > kLarge && size <= kLarge) buffer = {};
  if (buffer.size() < size) buffer.resize(size);
  disuse(buffer.data(), buffer.size() * sizeof(T));
  return buffer.data();
}

}  // namespace headrace::server::decode
