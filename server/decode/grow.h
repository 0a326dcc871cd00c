// Scratch memory that is reused for image after image.
#pragma once

#include <cstddef>
#include <vector>

#ifdef HEADRACE_MEMCHECK
#include <valgrind/memcheck.h>

#include <cstring>
#endif

namespace headrace::server::decode {

/// Marks memory whose content is no longer valid. The memcheck build overwrites it with a changing value and
/// marks it undefined, so Valgrind reports any later read. A no-op in other builds.
inline void mark_undefined([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef HEADRACE_MEMCHECK
  static thread_local unsigned char value = 0;
  std::memset(memory, value += 0x3B, bytes);
  (void)VALGRIND_MAKE_MEM_UNDEFINED(memory, bytes);
#endif
}

/// Marks bytes after a row's last pixel as defined: kernels load them in whole vectors and discard them.
inline void mark_defined([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef HEADRACE_MEMCHECK
  (void)VALGRIND_MAKE_MEM_DEFINED(memory, bytes);
#endif
}

/// Makes room for `size` elements of unspecified content. A vector that shrinks and grows with every image
/// would clear its bytes every time. A buffer enlarged by one giant image is freed.
template <class T>
T* grow(std::vector<T>& buffer, std::size_t size) {
  constexpr std::size_t kLarge = (std::size_t{64} << 20) / sizeof(T);
  if (buffer.size() > kLarge && size <= kLarge) buffer = {};
  if (buffer.size() < size) buffer.resize(size);
  mark_undefined(buffer.data(), buffer.size() * sizeof(T));
  return buffer.data();
}

}  // namespace headrace::server::decode
